-- sqlstreams: replay.lease_cut
-- $1 group, $2 where the group will stand. A lease across is left to whoever reclaims it, with a token that its owner
-- does not know.
update "{schema}claim_lease_{stream}"
set high = $2, token = randomblob(16), presence_id = null
where consumer_group_id = $1 and low < $2 and high > $2
