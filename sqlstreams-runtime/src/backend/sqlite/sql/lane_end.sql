-- sqlstreams: lane.end
-- $1 group, $2 token, $3 the message that the lane stands at, $4 where the lane ends as far as the caller knows.
-- A lane that was extended meanwhile stays: the messages between would be lost.
delete from "{schema}exception_queue_{stream}"
where consumer_group_id = $1 and message_id = $3 and token = $2 and held_to = $4
returning message_id
