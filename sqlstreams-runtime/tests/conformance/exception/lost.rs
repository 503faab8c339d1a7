//! Messages in trouble whose owner is gone: `exception_take` counts the loss before it gives them out again, and
//! gives them out as suspects.

use sqlstreams_runtime::MessageId;
use sqlstreams_runtime::backend::{ExceptionNext, ExceptionTakeParams};
use sqlstreams_runtime::identity::LeaseToken;

use super::{FAR, MINUTE, Setting, due_in_order, ids};
use crate::harness::{Installation, letter_params, on_both, trouble};

on_both! {
    take_leaves_the_messages_of_live_owners_alone,
    take_counts_a_lost_owner_before_the_next_run,
    take_buries_a_message_that_lost_too_many_owners,
    take_counts_no_loss_for_what_was_given_back,
    take_gives_so_many_suspects_beside_its_limit,
    take_counts_a_lost_owner_for_messages_that_it_does_not_give,
    take_leaves_lost_messages_of_other_versions_for_other_builds,
    take_finds_messages_whose_owners_row_is_gone,
    take_whose_answer_was_lost_is_given_back_by_its_token,
}

async fn take_leaves_the_messages_of_live_owners_alone(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(1)).await;
    assert_eq!(ids(&setting.take(MINUTE, 10).await.1), [1]);
    let thief = ExceptionTakeParams { presence: installation.presence().await, ..setting.take_params(9 * MINUTE, 10) };
    assert!(installation.backend.exception_take(&thief).await.expect("an answer").is_empty());
    assert_eq!(setting.troubles().await, ["1 inflight 1/1/0/0"]);
}

async fn take_counts_a_lost_owner_before_the_next_run(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(1)).await;
    let mut owner = setting.presence;
    let taken = setting.take(MINUTE, 10).await.1;
    assert_eq!((taken[0].id, taken[0].kills), (MessageId(1), 0));
    for kills in 1..=2 {
        installation.expire(owner).await;
        owner = installation.presence().await;
        let params = ExceptionTakeParams { presence: owner, ..setting.take_params(MINUTE, 10) };
        let taken = installation.backend.exception_take(&params).await.expect("an answer");
        assert_eq!(ids(&taken), [1]);
        assert_eq!((taken[0].attempts, taken[0].failures, taken[0].kills), (1, 1, kills), "no outcome was recorded");
        assert!(taken[0].message.is_some());
        assert_eq!(setting.troubles().await, [format!("1 inflight 1/1/0/{kills}")]);
    }
}

async fn take_buries_a_message_that_lost_too_many_owners(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(1)).await;
    let mut owner = setting.presence;
    assert_eq!(ids(&setting.take(MINUTE, 1).await.1), [1]);
    for loss in 1..=3 {
        installation.expire(owner).await;
        owner = installation.presence().await;
        let params = ExceptionTakeParams { presence: owner, ..setting.take_params(MINUTE, 1) };
        let taken = installation.backend.exception_take(&params).await.expect("an answer");
        assert_eq!(taken.len(), usize::from(loss < 3), "loss {loss}");
    }
    assert_eq!(setting.troubles().await, ["1 dead 1/1/0/3"]);
    let params = letter_params(setting.stream, setting.group);
    let dead = installation.backend.letter_list(&params).await.expect("an answer");
    assert_eq!((dead.len(), dead[0].id.0), (1, 1));
    assert!(dead[0].error.contains("lost 3 times"), "{}", dead[0].error);
}

async fn take_counts_no_loss_for_what_was_given_back(installation: &Installation) {
    let setting = Setting::with_trouble(installation, vec![trouble(1, ExceptionNext::Return)]).await;
    for _ in 0..5 {
        let (token, taken) = setting.take(FAR, 10).await;
        assert_eq!(ids(&taken), [1]);
        installation.backend.exception_return(setting.stream, setting.group, token).await.expect("a return");
    }
    let (_, taken) = setting.take(FAR, 10).await;
    assert_eq!((taken[0].attempts, taken[0].failures, taken[0].delays, taken[0].kills), (0, 0, 0, 0));
    assert_eq!(setting.troubles().await, ["1 inflight 0/0/0/0"]);
}

async fn take_gives_so_many_suspects_beside_its_limit(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(10)).await;
    assert_eq!(ids(&setting.take(MINUTE, 5).await.1), [1, 2, 3, 4, 5]);
    installation.expire(setting.presence).await;
    let presence = installation.presence().await;
    for (limit, suspects, expected) in [
        (2, 1, vec![1, 6, 7]),
        (1, 0, vec![8]),
        (0, 1, vec![2]),
        (10, 2, vec![3, 4, 9, 10]),
        (10, 0, vec![]),
        (10, 10, vec![5]),
        (10, 10, vec![]),
    ] {
        let params = ExceptionTakeParams { presence, suspects, ..setting.take_params(MINUTE, limit) };
        let taken = installation.backend.exception_take(&params).await.expect("an answer");
        assert_eq!(ids(&taken), expected, "at most {limit}, and {suspects} suspects");
        assert!(taken.iter().all(|row| row.kills == i32::from(row.id.0 <= 5)));
    }
    let expected = (1..=10).map(|id| format!("{id} inflight 1/1/0/{}", u8::from(id <= 5)));
    assert_eq!(setting.troubles().await, expected.collect::<Vec<_>>(), "only the first five lost an owner");
}

async fn take_counts_a_lost_owner_for_messages_that_it_does_not_give(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(3)).await;
    assert_eq!(setting.take(MINUTE, 3).await.1.len(), 3);
    installation.expire(setting.presence).await;
    let presence = installation.presence().await;
    let params = ExceptionTakeParams { presence, ..setting.take_params(MINUTE, 10) };
    assert_eq!(ids(&installation.backend.exception_take(&params).await.expect("an answer")), [1]);
    let expected = ["1 inflight 1/1/0/1", "2 ready 1/1/0/1", "3 ready 1/1/0/1"];
    assert_eq!(setting.troubles().await, expected, "they wait for their turn, and lost one owner each");
    let queue = installation.table_of("exception_queue", setting.stream);
    let owned = format!(
        "select count(*) from {queue} where status = 'ready' and (token is not null or presence_id is not null)"
    );
    assert_eq!(installation.number(&owned).await, 0, "nobody owns what waits");
}

async fn take_leaves_lost_messages_of_other_versions_for_other_builds(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(1)).await;
    assert_eq!(ids(&setting.take(MINUTE, 10).await.1), [1]);
    installation.expire(setting.presence).await;
    let presence = installation.presence().await;
    // At its last loss: no build that can't read it may bury it either.
    for max_kills in [1, 3] {
        let versions = vec![2];
        let params = ExceptionTakeParams { presence, versions, max_kills, ..setting.take_params(MINUTE, 10) };
        assert!(installation.backend.exception_take(&params).await.expect("an answer").is_empty());
        assert_eq!(setting.troubles().await, ["1 inflight 1/1/0/0"]);
    }
}

async fn take_finds_messages_whose_owners_row_is_gone(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(1)).await;
    assert_eq!(ids(&setting.take(MINUTE, 10).await.1), [1]);
    installation.execute(&format!("delete from {}", installation.table("presence"))).await;
    let presence = installation.presence().await;
    // Postgres walks what is being run only once in a while.
    let mut looks = 0;
    let taken = loop {
        looks += 1;
        assert!(looks <= 64, "it is never found");
        let params = ExceptionTakeParams { presence, ..setting.take_params(MINUTE, 10) };
        let taken = installation.backend.exception_take(&params).await.expect("an answer");
        if !taken.is_empty() {
            break taken;
        }
    };
    assert_eq!((taken.len(), taken[0].id, taken[0].kills), (1, MessageId(1), 1));
}

async fn take_whose_answer_was_lost_is_given_back_by_its_token(installation: &Installation) {
    let setting = Setting::with_trouble(installation, due_in_order(2)).await;
    let params = setting.take_params(MINUTE, 1);
    installation.backend.exception_take(&params).await.expect("an answer that gets lost");
    installation.backend.exception_return(setting.stream, setting.group, params.token).await.expect("a return");
    let again = ExceptionTakeParams { token: LeaseToken::mint(), ..setting.take_params(FAR, 10) };
    assert_eq!(ids(&installation.backend.exception_take(&again).await.expect("an answer")), [1, 2]);
    assert_eq!(setting.troubles().await, ["1 inflight 1/1/0/0", "2 inflight 1/1/0/0"]);
}
