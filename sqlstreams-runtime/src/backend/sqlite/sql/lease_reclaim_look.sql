-- sqlstreams: lease.reclaim_look
-- $1 group. Whether there is a lease to take over: asked outside any transaction, so that a group without
-- one never takes the write lock.
select exists (
    select 1
    from "{schema}claim_lease_{stream}" l
    where l.consumer_group_id = $1
        and not exists (
            select 1 from "{schema}presence" p
            where p.id = l.presence_id and p.expires_at >= cast(round(unixepoch('subsec') * 1000000) as integer)
        )
) as found
