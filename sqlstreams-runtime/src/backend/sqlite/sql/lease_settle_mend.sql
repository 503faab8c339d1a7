-- sqlstreams: lease.settle_mend
-- $1 token; $5 handled messages, a JSON array. In a replay: a dead letter that was kept goes when its message was handled.
delete from "{schema}exception_queue_{stream}"
where status = 'dead'
    and message_id in (select value from json_each($5))
    and consumer_group_id = (
        select consumer_group_id from "{schema}claim_lease_{stream}" where token = $1 and replay_until is not null
    )
