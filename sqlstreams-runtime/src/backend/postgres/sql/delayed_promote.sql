-- sqlstreams: delayed.promote
-- $1 the time of what was promoted before, or null, $2 limit, $3 now or null, in microseconds.
-- Moves what is due into the log, with new ids drawn in the order of the due times, by a transaction that owns an
-- xid before. Without anything due it takes no xid and writes nothing.
-- $1 spares the walk over what earlier promotions deleted and a held snapshot keeps. statement_timestamp() and not the
-- clock: it can bound an index. Rows are deleted by their place: whatever the planner expects, no table is walked.
-- Asynchronous: a crash takes the promotion back as a whole.
with due as materialized (
    select d.*, d.ctid as place
    from "{schema}"."delayed_message_{stream}" d
    where d.deliver_at <= coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', statement_timestamp())
        and d.deliver_at >= coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', '-infinity')
    order by d.deliver_at, d.id
    limit $2
    for update of d skip locked
),
x as materialized (
    select pg_current_xact_id() as xid, set_config('synchronous_commit', 'off', true) as setting
    where exists (select from due)
),
numbered as materialized (
    select d.*, nextval('"{schema}"."message_log_{stream}_id_seq"'::regclass) as message_id
    from x
    cross join due d
    where x.xid is not null and x.setting is not null
),
gone as (
    delete from "{schema}"."delayed_message_{stream}"
    where ctid = any(array(select place from due))
),
known as (
    update "{schema}"."idempotency_key_{stream}" k
    set message_id = n.message_id
    from numbered n
    where k.key = any(array(select idempotency_key from numbered where idempotency_key is not null))
        and k.key = n.idempotency_key and k.delayed_id = n.id
),
appended as (
    insert into "{schema}"."message_log_{stream}" (
        id, created_at, schema_version, codec, routing_key, message_key, headers, payload, payload_bytes,
        produced_at, scheduled_at
    )
    overriding system value
    select message_id, coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', clock_timestamp()),
        schema_version, codec, routing_key, message_key, headers, payload, payload_bytes, created_at, deliver_at
    from numbered
)
select
    (select count(*) from numbered) as promoted,
    (select max(message_id) from numbered) as newest,
    (select (extract(epoch from max(deliver_at)) * 1000000)::bigint from numbered) as reached,
    (extract(epoch from (
        select min(deliver_at) from "{schema}"."delayed_message_{stream}"
        where deliver_at > coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', statement_timestamp())
    ) - coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', clock_timestamp())) * 1000000)::bigint as wait
