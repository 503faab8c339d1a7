-- sqlstreams: parked.take_empty
-- $2 group.
delete from "{schema}parked_range_{stream}"
where consumer_group_id = $2 and low >= high
