//! The statement texts of this backend.

use crate::backend::template::statements;

statements! {
    /// Statements on the shared tables.
    SharedStatements {
        connection_prepare,
        group_create,
        group_gate,
        group_update,
        migration_list,
        migration_lock,
        migration_record,
        migration_schema,
        migration_table,
        partition_ensure,
        presence_enter,
        presence_leave,
        presence_renew,
        replay_gate,
        role_grant,
        stream_create,
        stream_find,
        stream_version_create,
        wake_send,
    }
}

statements! {
    /// Statements on one stream's tables.
    StreamStatements {
        binding_hold,
        binding_list,
        binding_lock,
        binding_replace,
        claim_take,
        cursor_create,
        cursor_observe,
        cursor_position,
        cursor_stall,
        delivery_append,
        delivery_list,
        exception_due,
        exception_return,
        exception_settle,
        exception_take,
        group_lock,
        key_gate,
        key_gate_look,
        lane_bury,
        lane_end,
        lane_move,
        lane_read,
        lease_find,
        lease_reclaim,
        lease_report,
        lease_return,
        lease_settle,
        letter_count,
        letter_discard,
        letter_list,
        letter_read,
        letter_redrive,
        message_produce,
        message_produce_in,
        message_read,
        parked_take,
        replay_count,
        replay_exception,
        replay_lane,
        replay_lease,
        replay_lock,
        replay_move,
        replay_parked,
        replay_pause,
        replay_seek,
    }
}
