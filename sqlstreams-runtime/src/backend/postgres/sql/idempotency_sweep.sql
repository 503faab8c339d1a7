-- sqlstreams: idempotency.sweep
-- $1 the expiry that earlier sweeps reached, or null, $2 limit, $3 now or null, in microseconds.
with gone as (
    delete from "{schema}"."idempotency_key_{stream}"
    where ctid = any(array(
        select ctid from "{schema}"."idempotency_key_{stream}"
        where expires_at <= coalesce(timestamptz 'epoch' + $3::bigint * interval '1 microsecond', statement_timestamp())
            and expires_at >= coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', '-infinity')
        order by expires_at
        limit $2
        for update skip locked
    ))
    returning expires_at
)
select count(*) as swept, (extract(epoch from max(expires_at)) * 1000000)::bigint as reached from gone
