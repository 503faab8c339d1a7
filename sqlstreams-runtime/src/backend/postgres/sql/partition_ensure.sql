-- sqlstreams: partition.ensure
-- $1 stream, $2 ids that are about to be drawn.
select "{schema}".partition_ensure($1, $2) as bound
