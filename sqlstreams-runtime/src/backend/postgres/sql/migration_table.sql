-- sqlstreams: migration.table
create table if not exists "{schema}".migration_log (
    version integer primary key,
    name text not null,
    oldest_build text not null,
    applied_by text not null,
    applied_at timestamptz not null default now()
)
