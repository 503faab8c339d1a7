-- sqlstreams: lane.bury_move
-- $1 group, $2 token, $3 the message that the lane stands at, $4 its successor.
update "{schema}exception_queue_{stream}"
set message_id = $4
where consumer_group_id = $1 and message_id = $3 and token = $2 and held_to is not null
