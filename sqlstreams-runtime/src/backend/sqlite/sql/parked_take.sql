-- sqlstreams: parked.take
-- Differs from postgres: several statements in one immediate transaction: this one, parked.take_shrink,
-- parked.take_empty, and lease.find for the answer.
-- $1 token, $2 group, $3 presence, $4 versions, a JSON array, $5 width.
insert into "{schema}claim_lease_{stream}" (token, consumer_group_id, seq, presence_id, low, high, schema_version, replay_until)
select $1, consumer_group_id, 0, $3, low, min(high, low + $5), schema_version, replay_until
from "{schema}parked_range_{stream}"
where consumer_group_id = $2 and schema_version in (select value from json_each($4))
order by low
limit 1
