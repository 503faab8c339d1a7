-- sqlstreams: replay.parked
-- $1 group, $2 where the group will stand.
with gone as (
    delete from "{schema}"."parked_range_{stream}"
    where consumer_group_id = $1 and low >= $2
    returning id
),
cut as (
    update "{schema}"."parked_range_{stream}"
    set high = $2, updated_at = clock_timestamp()
    where consumer_group_id = $1 and low < $2 and high > $2
    returning id
)
select (select count(*) from gone) as parked, (select count(*) from cut) as parked_cut
