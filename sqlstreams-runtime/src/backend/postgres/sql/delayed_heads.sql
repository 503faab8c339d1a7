-- sqlstreams: delayed.heads
-- $1 streams. The newest delayed id that was drawn in each: another number means that something was delayed, though
-- perhaps by a transaction that is still open. One statement for all streams, and no table is read.
select s.id as stream, coalesce(
    pg_sequence_last_value(to_regclass(format('"{schema}".%I', 'delayed_message_' || s.id || '_id_seq'))), 0) as head
from unnest($1::bigint[]) s (id)
