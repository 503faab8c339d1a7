//! The statement texts of this backend.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::backend::template::{Names, statements};

statements! {
    /// Statements on the shared tables, and on none.
    SharedStatements {
        delayed_heads,
        durability_level,
        group_create,
        group_update,
        journal_mode,
        log_truncate,
        migration_list,
        migration_record,
        migration_table,
        presence_enter,
        presence_leave,
        presence_renew,
        stream_create,
        stream_find,
        stream_version_create,
        text_encoding,
        transaction_begin,
        transaction_commit,
        wake_heads,
        wake_version,
        worker_declare,
        worker_declare_group,
        worker_list,
        worker_look,
        worker_take,
        worker_target,
    }
}

statements! {
    /// Statements on one stream's tables.
    StreamStatements {
        binding_hold,
        binding_list,
        binding_lock,
        binding_replace,
        binding_replace_rest,
        claim_take,
        claim_take_advance,
        claim_take_look,
        claim_take_settle,
        cursor_advance,
        cursor_advance_look,
        cursor_create,
        cursor_position,
        delayed_cancel,
        delayed_cancel_key,
        delayed_promote,
        delayed_promote_key,
        delayed_promote_look,
        delayed_promote_remove,
        delivery_append,
        delivery_list,
        exception_due,
        exception_return,
        exception_settle,
        exception_settle_done,
        exception_settle_log,
        exception_take,
        exception_take_bury,
        exception_take_look,
        exception_take_lost,
        exception_take_read,
        group_lock,
        idempotency_sweep,
        idempotency_sweep_look,
        key_gate,
        key_ticket,
        lane_bury,
        lane_bury_copy,
        lane_bury_move,
        lane_bury_reset,
        lane_end,
        lane_list,
        lane_move,
        lane_read,
        lease_find,
        lease_reclaim,
        lease_reclaim_look,
        lease_report,
        lease_report_free,
        lease_report_progress,
        lease_return,
        lease_return_exception,
        lease_settle,
        lease_settle_exception,
        lease_settle_extend,
        lease_settle_log,
        lease_settle_mend,
        lease_settle_park,
        letter_count,
        letter_discard,
        letter_discard_look,
        letter_list,
        letter_read,
        letter_redrive,
        letter_redrive_look,
        message_produce,
        message_produce_with,
        message_produce_with_append,
        message_produce_with_delay,
        message_produce_with_first,
        message_produce_with_look,
        message_read,
        parked_take,
        parked_take_empty,
        parked_take_look,
        parked_take_shrink,
        replay_count,
        replay_exception,
        replay_exception_cut,
        replay_lease,
        replay_lease_cut,
        replay_move,
        replay_parked,
        replay_parked_cut,
        replay_pause,
        replay_seek,
    }
}

/// Operations of several statements: each one text, from `begin immediate` to `commit`, whose statements
/// share their parameters. A text runs in one exchange with the connection's thread. So the write lock is
/// never held while a task of this process waits for its turn, and a dropped future leaves nothing half done.
#[derive(Clone, Debug)]
pub(crate) struct Transactions {
    pub(crate) claim_take: SqlStr,
    pub(crate) delayed_cancel: SqlStr,
    pub(crate) delayed_promote: SqlStr,
    pub(crate) exception_settle: SqlStr,
    pub(crate) exception_settle_logged: SqlStr,
    pub(crate) exception_take: SqlStr,
    pub(crate) lane_bury: SqlStr,
    pub(crate) lease_report: SqlStr,
    pub(crate) lease_return: SqlStr,
    pub(crate) lease_settle: SqlStr,
    pub(crate) lease_settle_logged: SqlStr,
    pub(crate) letter_discard: SqlStr,
    pub(crate) letter_redrive: SqlStr,
    pub(crate) message_produce_with: SqlStr,
    pub(crate) parked_take: SqlStr,
}

impl Transactions {
    pub(crate) fn of(shared: &SharedStatements, stream: &StreamStatements) -> Self {
        let s = stream;
        let join = |parts: &[&SqlStr]| {
            let mut text = String::new();
            for part in [&[&shared.transaction_begin], parts, &[&shared.transaction_commit]].concat() {
                text.push_str(part.as_str());
                text.push_str(";\n");
            }
            // Its parts are filled statements.
            AssertSqlSafe(text).into_sql_str()
        };
        Self {
            claim_take: join(&[&s.claim_take_settle, &s.claim_take, &s.claim_take_advance, &s.claim_take_look]),
            delayed_cancel: join(&[&s.delayed_cancel_key, &s.delayed_cancel]),
            delayed_promote: join(&[&s.delayed_promote, &s.delayed_promote_key, &s.delayed_promote_remove]),
            exception_settle: join(&[&s.exception_settle_done, &s.exception_settle]),
            exception_settle_logged: join(&[&s.exception_settle_log, &s.exception_settle_done, &s.exception_settle]),
            exception_take: join(&[&s.exception_take_bury, &s.exception_take_lost, &s.exception_take]),
            lane_bury: join(&[&s.lane_bury_move, &s.lane_bury_copy, &s.lane_bury_reset]),
            lease_report: join(&[&s.lease_report_progress, &s.lease_report_free, &s.lease_report]),
            lease_return: join(&[&s.lease_return_exception, &s.lease_return]),
            lease_settle: join(&[
                &s.lease_settle_exception,
                &s.lease_settle_extend,
                &s.lease_settle_park,
                &s.lease_settle,
            ]),
            lease_settle_logged: join(&[
                &s.lease_settle_log,
                &s.lease_settle_mend,
                &s.lease_settle_exception,
                &s.lease_settle_extend,
                &s.lease_settle_park,
                &s.lease_settle,
            ]),
            letter_discard: join(&[&s.letter_discard_look, &s.letter_discard]),
            letter_redrive: join(&[&s.letter_redrive_look, &s.letter_redrive]),
            message_produce_with: join(&[
                &s.message_produce_with,
                &s.message_produce_with_look,
                &s.message_produce_with_append,
                &s.message_produce_with_delay,
            ]),
            parked_take: join(&[&s.parked_take, &s.parked_take_shrink, &s.parked_take_empty, &s.lease_find]),
        }
    }
}

/// The texts that create a stream's tables: always, and when the stream has a message key.
pub(crate) fn family(names: Names<'_>) -> (SqlStr, SqlStr) {
    (
        names.fill(include_str!("migrations/stream_family.sql")),
        names.fill(include_str!("migrations/stream_family_key.sql")),
    )
}
