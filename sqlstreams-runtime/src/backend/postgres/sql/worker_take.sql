-- sqlstreams: worker.take
-- $1 owner, $2 workers, $3 a token for each, $4 now or null. Takes the lowest free place of each; the unique slot
-- decides between two that see the same one. Answers the tokens that hold.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $4::bigint * interval '1 microsecond', clock_timestamp()) as now
),
free as materialized (
    select w.id as worker_id, n.token, s.slot
    from unnest($2::bigint[], $3::uuid[]) n (worker_id, token)
    join "{schema}".worker_config w on w.id = n.worker_id
    cross join clock c
    cross join lateral (
        select place.slot
        from generate_series(0, case when w.target_instances < 0 then 999 else w.target_instances - 1 end) place (slot)
        where not exists (
            select from "{schema}".worker_instance i
            join "{schema}".presence p on p.id = i.presence_id
            where i.worker_id = w.id and i.slot = place.slot and i.presence_id <> $1 and p.expires_at > c.now
        )
        order by place.slot
        limit 1
    ) s
)
insert into "{schema}".worker_instance as i (worker_id, slot, token, presence_id)
select worker_id, slot, token, $1 from free order by worker_id, slot
on conflict (worker_id, slot) do update
set token = excluded.token, presence_id = excluded.presence_id, failures = 0, created_at = now()
where i.presence_id = excluded.presence_id or not exists (
    select from "{schema}".presence p, clock c where p.id = i.presence_id and p.expires_at > c.now
)
returning token
