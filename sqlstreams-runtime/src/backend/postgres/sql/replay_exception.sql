-- sqlstreams: replay.exception
-- $1 group, $2 where the group will stand, $3 keep dead letters. After replay.lease and replay.lane, in a statement of
-- its own: it has to see what the settlements that those waited for have recorded. A lane across ends where the group
-- stands; one that runs goes to another owner, and so does a message whose ticket is of a place above: no range of the
-- replay would wait for it.
with gone as (
    delete from "{schema}"."exception_queue_{stream}"
    where consumer_group_id = $1 and message_id > $2 and (status <> 'dead' or not $3)
    returning status, held_to, presence_id
),
across as materialized (
    select message_id, presence_id, held_to
    from "{schema}"."exception_queue_{stream}"
    where consumer_group_id = $1 and message_id <= $2
        and (held_to > $2 or (status = 'inflight' and ticket > $2))
),
cut as (
    update "{schema}"."exception_queue_{stream}" e
    set held_to = case when e.held_to > $2 then $2 else e.held_to end, ticket = null, status = 'ready', token = null, presence_id = null, updated_at = clock_timestamp(),
        can_run_after = case e.status when 'inflight' then clock_timestamp() else e.can_run_after end
    from across a
    where e.consumer_group_id = $1 and e.message_id = a.message_id and e.status <> 'dead'
    returning e.held_to
)
select
    (select count(*) from gone where status <> 'dead' and held_to is null) as waiting,
    (select count(*) from gone where held_to is not null) as lanes,
    (select count(*) from cut where held_to is not null) as lanes_cut,
    (select count(*) from gone where status = 'dead') as dead,
    (select count(*)
        from (select presence_id from gone where status = 'inflight' union all select presence_id from across) r
        join "{schema}".presence p on p.id = r.presence_id
        where p.expires_at >= clock_timestamp()) as running
