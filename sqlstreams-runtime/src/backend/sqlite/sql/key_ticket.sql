-- sqlstreams: key.ticket
-- $1 group, $2 token, $3 message. Whoever holds the write lock comes before or after each claim.
update "{schema}exception_queue_{stream}"
set ticket = (
        select claimed from "{schema}consumer_group_cursor_{stream}" where consumer_group_id = $1
    ),
    ticket_number = (
        select coalesce(max(ticket_number), 0) + 1
        from "{schema}exception_queue_{stream}"
        where consumer_group_id = $1 and status = 'inflight'
    ),
    updated_at = cast(round(unixepoch('subsec') * 1000000) as integer)
where consumer_group_id = $1 and message_id = $3 and token = $2 and status = 'inflight'
returning ticket
