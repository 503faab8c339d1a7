-- sqlstreams: log.truncate
-- Moves everything from the WAL file into the database file and empties it, unless another connection is at
-- work this moment: then the first column is 1.
pragma wal_checkpoint(truncate)
