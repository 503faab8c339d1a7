-- sqlstreams: replay.count
-- $1 group, $2 where the group would stand, $3 and $4 the ids between, ($3, $4]: parameters, so that only their
-- partitions are opened. What a move touches.
select
    (select count(*) from "{schema}"."message_log_{stream}" where id > $3 and id <= $4) as messages,
    (select count(*) from "{schema}"."claim_lease_{stream}" where consumer_group_id = $1 and low >= $2) as leases,
    (select count(*) from "{schema}"."claim_lease_{stream}" where consumer_group_id = $1 and low < $2 and high > $2) as leases_cut,
    (select count(*) from "{schema}"."claim_lease_{stream}" l where l.consumer_group_id = $1 and l.high > $2 and exists (
        select from "{schema}".presence p where p.id = l.presence_id and p.expires_at >= clock_timestamp()
    )) as ranges_running,
    (select count(*) from "{schema}"."exception_queue_{stream}"
        where consumer_group_id = $1 and message_id > $2 and status <> 'dead' and held_to is null) as waiting,
    (select count(*) from "{schema}"."exception_queue_{stream}" where consumer_group_id = $1 and message_id > $2 and held_to is not null) as lanes,
    (select count(*) from "{schema}"."exception_queue_{stream}" where consumer_group_id = $1 and message_id <= $2 and held_to > $2) as lanes_cut,
    (select count(*) from "{schema}"."exception_queue_{stream}" l
        where l.consumer_group_id = $1 and l.status = 'inflight' and (l.message_id > $2 or l.held_to > $2 or l.ticket > $2) and exists (
        select from "{schema}".presence p where p.id = l.presence_id and p.expires_at >= clock_timestamp()
    )) as running,
    (select count(*) from "{schema}"."exception_queue_{stream}" where consumer_group_id = $1 and message_id > $2 and status = 'dead') as dead,
    (select count(*) from "{schema}"."parked_range_{stream}" where consumer_group_id = $1 and low >= $2) as parked,
    (select count(*) from "{schema}"."parked_range_{stream}" where consumer_group_id = $1 and low < $2 and high > $2) as parked_cut
