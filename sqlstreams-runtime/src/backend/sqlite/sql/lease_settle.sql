-- sqlstreams: lease.settle
-- Differs from postgres: the lease goes last; the statements before it, lease.settle_exception,
-- lease.settle_extend and lease.settle_park, find its group through it. Whoever lost it changes nothing.
-- $1 token, $2 exceptions, $3 parked ranges, $4 now in microseconds or null.
delete from "{schema}claim_lease_{stream}"
where token = $1
returning lid
