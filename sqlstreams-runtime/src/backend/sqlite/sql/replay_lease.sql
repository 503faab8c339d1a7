-- sqlstreams: replay.lease
-- Differs from postgres: one of several statements of one immediate transaction; replay.count counted before them.
-- $1 group, $2 where the group will stand.
delete from "{schema}claim_lease_{stream}"
where consumer_group_id = $1 and low >= $2
