-- sqlstreams: replay.parked
-- Differs from postgres: one of several statements of one immediate transaction; replay.count counted before them.
-- $1 group, $2 where the group will stand.
delete from "{schema}parked_range_{stream}"
where consumer_group_id = $1 and low >= $2
