-- sqlstreams: migration.table
create table if not exists "{schema}migration_log" (
    version integer primary key,
    name text not null,
    oldest_build text not null,
    applied_by text not null,
    applied_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict
