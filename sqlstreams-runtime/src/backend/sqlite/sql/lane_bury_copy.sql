-- sqlstreams: lane.bury_copy
-- After lane.bury_move: the dead letter, with what was counted for it. Parameters as in lane.bury.
insert into "{schema}exception_queue_{stream}" (
    consumer_group_id, message_id, status, schema_version, message_key, attempts, failures, failures_total, kills, delays,
    redrives, first_failed_at, died_at, last_error
)
select consumer_group_id, $3, 'dead', schema_version, message_key, attempts + 1, failures + 1, failures_total + 1, kills,
    delays, redrives, coalesce(first_failed_at, $8, cast(round(unixepoch('subsec') * 1000000) as integer)),
    coalesce($8, cast(round(unixepoch('subsec') * 1000000) as integer)), $7
from "{schema}exception_queue_{stream}"
where consumer_group_id = $1 and message_id = $4 and token = $2 and held_to is not null
