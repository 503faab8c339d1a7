-- sqlstreams: migration.lock
select pg_advisory_xact_lock(hashtextextended('{schema}.migration', 0))
