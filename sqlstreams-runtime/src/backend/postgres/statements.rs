//! The statement texts of this backend.

use crate::backend::template::statements;

statements! {
    /// Statements on the shared tables.
    SharedStatements {
        connection_look,
        connection_prepare,
        group_create,
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
        stream_create,
        stream_find,
        stream_version_create,
        transaction_begin,
        transaction_begin_settings,
        transaction_commit,
        transaction_rollback,
        wake_send,
    }
}

statements! {
    /// Statements on one stream's tables.
    StreamStatements {
        binding_replace,
        claim_take,
        cursor_create,
        cursor_observe,
        cursor_position,
        cursor_stall,
        exception_dead,
        exception_due,
        exception_return,
        exception_settle,
        exception_take,
        group_lock,
        lease_find,
        lease_reclaim,
        lease_report,
        lease_return,
        lease_settle,
        message_produce,
        message_produce_in,
        message_read,
        parked_take,
    }
}
