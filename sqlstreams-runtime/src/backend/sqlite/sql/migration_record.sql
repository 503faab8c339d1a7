-- sqlstreams: migration.record
-- $1 version, $2 name, $3 oldest build, $4 this build.
insert into "{schema}migration_log" (version, name, oldest_build, applied_by)
values ($1, $2, $3, $4)
