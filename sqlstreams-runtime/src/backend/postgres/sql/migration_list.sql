-- sqlstreams: migration.list
select version, oldest_build from "{schema}".migration_log order by version
