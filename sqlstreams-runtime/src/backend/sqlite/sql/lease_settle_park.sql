-- sqlstreams: lease.settle_park
-- $1 token, $3 JSON, one array a parked range: version, low, high. Those that extended another one end where
-- a stored one ends.
insert into "{schema}parked_range_{stream}" (consumer_group_id, schema_version, low, high, replay_until)
select l.consumer_group_id, n.version, n.low, n.high, l.replay_until
from "{schema}claim_lease_{stream}" l
cross join (select value ->> 0 as version, value ->> 1 as low, value ->> 2 as high from json_each($3)) n
where l.token = $1
    and not exists (
        select 1 from "{schema}parked_range_{stream}" p
        where p.consumer_group_id = l.consumer_group_id and p.schema_version = n.version and p.high = n.high
    )
