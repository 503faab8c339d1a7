-- sqlstreams: replay.lease
-- $1 group, $2 where the group will stand. Waits for settlements that are under way, so that later statements see what
-- they recorded. A lease across is left to whoever reclaims it, with a token that its owner does not know.
with locked as materialized (
    select lid, low, presence_id
    from "{schema}"."claim_lease_{stream}"
    where consumer_group_id = $1 and high > $2
    order by lid
    for update
),
gone as (
    delete from "{schema}"."claim_lease_{stream}"
    where lid in (select lid from locked where low >= $2)
    returning lid
),
cut as (
    update "{schema}"."claim_lease_{stream}"
    set high = $2, token = gen_random_uuid(), presence_id = null
    where lid in (select lid from locked where low < $2)
    returning lid
)
select (select count(*) from gone) as leases, (select count(*) from cut) as leases_cut,
    (select count(*) from locked l join "{schema}".presence p on p.id = l.presence_id
        where p.expires_at >= clock_timestamp()) as running
