//! Dead letters that a move keeps, when the replay reaches their messages.

use sqlstreams_runtime::backend::{ExceptionNext, ReturnParams, SettleParams};
use sqlstreams_runtime::identity::MessageId;

use super::{KEEPING, claim, dead, go, handle, leases};
use crate::exception::{FAR, MINUTE, Setting};
use crate::harness::{Installation, on_both, retry, settle_params, trouble};

on_both! {
    a_kept_letter_goes_when_its_message_is_handled_in_the_replay,
    a_kept_letter_goes_on_with_its_history_when_its_message_fails_again,
    a_kept_letter_breaks_no_range_that_goes_back,
}

async fn a_kept_letter_goes_when_its_message_is_handled_in_the_replay(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![dead(12), dead(13), dead(3)]).await;
    go(&setting, 11, KEEPING).await;
    let (token, _) = claim(&setting, 10).await;
    let handled = (11..=20).filter(|id| *id != 13).map(MessageId).collect();
    let params = SettleParams { handled, ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(setting.troubles().await, ["3 dead 1/1/0/0", "13 dead 1/1/0/0"], "13 was none of them");
    assert!(installation.attempts(setting.stream, setting.group).await.is_empty(), "nothing is logged");
    // Outside of a replay a list of handled messages removes nothing.
    let (token, row) = claim(&setting, 10).await;
    assert_eq!(row.replay_until, None);
    let params = SettleParams { handled: vec![MessageId(3)], ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    assert_eq!(setting.troubles().await.len(), 2);
}

async fn a_kept_letter_goes_on_with_its_history_when_its_message_fails_again(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![dead(12), dead(13), dead(14), dead(15)]).await;
    go(&setting, 11, KEEPING).await;
    let (token, _) = claim(&setting, 10).await;
    let later = ExceptionNext::Later { after: MINUTE };
    let exceptions =
        vec![trouble(12, retry(MINUTE)), dead(13), trouble(14, later), trouble(15, ExceptionNext::Return), dead(16)];
    let params = SettleParams { exceptions, ..settle_params(setting.stream, token) };
    assert!(installation.backend.lease_settle(&params).await.expect("a settlement"));
    let expected = ["12 ready 2/1/0/0", "13 dead 2/1/0/0", "14 ready 2/0/1/0", "15 ready 1/0/0/0", "16 dead 1/1/0/0"];
    assert_eq!(setting.troubles().await, expected, "the retries begin anew, the attempts go on");
    let queue = installation.table_of("exception_queue", setting.stream);
    let total = format!("select cast(failures_total as bigint) from {queue} where message_id = 12");
    assert_eq!(installation.number(&total).await, 2);
    let (token, taken) = setting.take(FAR, 10).await;
    assert_eq!(crate::exception::ids(&taken), [12, 14, 15]);
    assert_eq!((taken[0].failures, taken[0].attempts), (1, 2));
    setting.settle(token, vec![trouble(12, ExceptionNext::Done), trouble(14, ExceptionNext::Done)]).await;
    assert_eq!(setting.troubles().await.len(), 3, "a letter whose retry succeeds is gone");
}

async fn a_kept_letter_breaks_no_range_that_goes_back(installation: &Installation) {
    let setting = Setting::new(installation).await;
    handle(&setting, 20, vec![dead(12), dead(13)]).await;
    go(&setting, 11, KEEPING).await;
    let (token, _) = claim(&setting, 10).await;
    let back = ReturnParams { token, done: vec![(10, 12)], exceptions: vec![trouble(12, retry(MINUTE))] };
    installation.backend.lease_return(setting.stream, &[back]).await.expect("a return");
    assert_eq!(setting.troubles().await, ["12 ready 2/1/0/0", "13 dead 1/1/0/0"]);
    assert_eq!(leases(&setting).await, ["(10, 20]"]);
}
