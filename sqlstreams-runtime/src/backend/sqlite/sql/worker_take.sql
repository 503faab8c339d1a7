-- sqlstreams: worker.take
-- $1 owner, $2 JSON, one array a worker: its id and a token; $3 now in microseconds. Takes the lowest free place of each.
-- Answers the tokens that hold.
with recursive place (slot) as (
    select 0 union all select slot + 1 from place where slot < 999
)
insert into "{schema}worker_instance" (worker_id, slot, token, presence_id)
select w.id, (
    select slot from place
    where (w.target_instances < 0 or slot < w.target_instances) and not exists (
        select 1 from "{schema}worker_instance" i
        join "{schema}presence" p on p.id = i.presence_id
        where i.worker_id = w.id and i.slot = place.slot and i.presence_id <> $1 and p.expires_at > $3
    )
    limit 1
) as free, unhex(n.value ->> 1), $1
from json_each($2) n
join "{schema}worker_config" w on w.id = n.value ->> 0
where free is not null
on conflict (worker_id, slot) do update
set token = excluded.token, presence_id = excluded.presence_id, failures = 0,
    created_at = cast(round(unixepoch('subsec') * 1000000) as integer)
returning token
