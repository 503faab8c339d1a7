-- sqlstreams: exception.settle_done
-- $1 group, $2 token, $3 outcomes as in exception.settle.
delete from "{schema}exception_queue_{stream}"
where consumer_group_id = $1 and token = $2
    and message_id in (select value ->> 0 from json_each($3) where value ->> 1 = 'done')
returning message_id
