-- sqlstreams: message.produce_with
-- $1 version, $2 codec; one element a message: $3 payloads, $4 routing keys, $5 message keys, $6 headers, $7 the time to
-- deliver at and $8 the wait, in microseconds or null, $9 idempotency keys, $10 payload hashes, $11 how
-- long keys are kept; $12 now or null, $13 whether the commit is ours, $14 how long to wait for a lock, or null.
-- The transaction owns an xid before it draws a message id, as in message.produce. Ids are drawn in the order of the
-- arrays, before it is known which keys are new; those of duplicates are not used. Keys are inserted in their order: two
-- batches that share some can't wait for each other.
-- The answer reads the keys that this statement's snapshot sees: after a wait for a transaction that committed
-- meanwhile, a key is neither inserted nor seen, and the caller asks with message.produce_with_find.
-- IN beside OR, and a subquery beside each row, keep large batches from nested loops, whatever the planner expects.
with x as materialized (
    select pg_current_xact_id() as xid,
        case when $13::boolean and current_setting('synchronous_commit') = 'off'
            then set_config('synchronous_commit', 'on', true) else 'kept' end as durable,
        case when $14::text is null then 'kept' else set_config('lock_timeout', $14::text, true) end as patience,
        coalesce(timestamptz 'epoch' + $12::bigint * interval '1 microsecond', clock_timestamp()) as now
),
input as materialized (
    select m.*, x.now,
        coalesce(timestamptz 'epoch' + m.deliver_micros * interval '1 microsecond', x.now + m.wait_micros * interval '1 microsecond') as deliver_at
    from x
    cross join unnest(
        $3::json[], $4::text[], $5::text[], $6::json[], $7::bigint[], $8::bigint[], $9::bytea[], $10::bytea[], $11::bigint[]
    ) with ordinality as m (payload, routing_key, message_key, headers, deliver_micros, wait_micros, key, hash, keep, place)
    where x.xid is not null and x.durable is not null and x.patience is not null
),
drawn as materialized (
    select i.*,
        case when i.deliver_at > i.now then null
            else nextval('"{schema}"."message_log_{stream}_id_seq"'::regclass) end as id,
        case when i.deliver_at > i.now
            then nextval('"{schema}"."delayed_message_{stream}_id_seq"'::regclass) end as delayed_id
    from input i
),
keyed as (
    insert into "{schema}"."idempotency_key_{stream}" (key, message_id, delayed_id, payload_hash, expires_at)
    select d.key, d.id, d.delayed_id, d.hash,
        greatest(d.now, d.deliver_at) + d.keep * interval '1 microsecond'
    from drawn d
    where d.key is not null
    order by d.key
    on conflict (key) do nothing
    returning key
),
appended as (
    insert into "{schema}"."message_log_{stream}" (
        id, schema_version, codec, routing_key, message_key, headers, payload
    )
    overriding system value
    select d.id, $1, $2, d.routing_key, d.message_key, d.headers, d.payload
    from drawn d
    where d.id is not null and (d.key is null or d.key in (select key from keyed))
),
delayed as (
    insert into "{schema}"."delayed_message_{stream}" (
        id, deliver_at, schema_version, codec, routing_key, message_key, headers, payload, idempotency_key
    )
    overriding system value
    select d.delayed_id, d.deliver_at, $1, $2, d.routing_key, d.message_key, d.headers, d.payload, d.key
    from drawn d
    where d.delayed_id is not null and (d.key is null or d.key in (select key from keyed))
)
select d.id, d.delayed_id, (extract(epoch from d.deliver_at - d.now) * 1000000)::bigint as wait,
    d.key is null or d.key in (select key from keyed) as fresh,
    f.message_id as first_id, f.delayed_id as first_delayed_id, f.payload_hash = d.hash as same
from drawn d
left join lateral (
    select k.message_id, k.delayed_id, k.payload_hash
    from "{schema}"."idempotency_key_{stream}" k
    where k.key = d.key
    limit 1
) f on true
order by d.place
