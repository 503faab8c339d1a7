-- sqlstreams: replay.exception
-- Differs from postgres: one of several statements of one immediate transaction; replay.count counted before them.
-- $1 group, $2 where the group will stand, $3 keep dead letters.
delete from "{schema}exception_queue_{stream}"
where consumer_group_id = $1 and message_id > $2 and (status <> 'dead' or not $3)
