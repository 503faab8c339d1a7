-- sqlstreams: partition.ensure
-- $1 stream.
select "{schema}".partition_ensure($1) as bound
