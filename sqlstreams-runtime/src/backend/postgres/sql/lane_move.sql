-- sqlstreams: lane.move
-- $1 group, $2 token, $3 the message that the lane stands at, $4 the one that it goes to, $5 its version, $6 next
-- (go, retry, later, return), $7 wait in microseconds, $8 error, $9 now or null.
-- What was counted belongs to the message that the lane stands at: another one begins anew.
with clock as materialized (
    select coalesce(timestamptz 'epoch' + $9::bigint * interval '1 microsecond', clock_timestamp()) as now
)
update "{schema}"."exception_queue_{stream}" e
set message_id = $4,
    schema_version = case when $3 = $4 then e.schema_version else $5 end,
    status = case $6 when 'go' then 'inflight' else 'ready' end,
    attempts = case when $3 = $4 then e.attempts else 0 end + case when $6 in ('retry', 'later') then 1 else 0 end,
    failures = case when $3 = $4 then e.failures else 0 end + case $6 when 'retry' then 1 else 0 end,
    failures_total = case when $3 = $4 then e.failures_total else 0 end + case $6 when 'retry' then 1 else 0 end,
    delays = case when $3 = $4 then e.delays else 0 end + case $6 when 'later' then 1 else 0 end,
    kills = case when $3 = $4 then e.kills else 0 end,
    can_run_after = c.now + $7::bigint * interval '1 microsecond',
    first_failed_at = case
        when $3 = $4 and e.first_failed_at is not null then e.first_failed_at
        when $6 = 'retry' then c.now
    end,
    last_error = coalesce($8, case when $3 = $4 then e.last_error end),
    token = case $6 when 'go' then e.token end,
    presence_id = case $6 when 'go' then e.presence_id end,
    updated_at = c.now
from clock c
where e.consumer_group_id = $1 and e.message_id = $3 and e.token = $2 and e.held_to is not null
returning e.held_to
