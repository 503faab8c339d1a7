-- sqlstreams: stream.create
-- Differs from postgres: the caller creates the stream's tables, in the same transaction.
-- $1 name, $2 key field, $3 partition size.
insert into "{schema}stream_config" (name, message_key, partition_size)
values ($1, $2, $3)
returning id
