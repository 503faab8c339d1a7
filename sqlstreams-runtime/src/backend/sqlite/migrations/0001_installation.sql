-- Shared tables, and nothing that belongs to one stream. "{schema}" is filled in when the migration runs or is printed.
-- Times are integer microseconds since 1970, to the millisecond. Their default is written with julianday,
-- which the shells of older distributions know as well.

create table "{schema}system_config" (
    id integer primary key default 1 check (id = 1),
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;
insert into "{schema}system_config" default values;

-- Autoincrement: the id of a removed stream, the suffix of its tables, is not given to another one.
create table "{schema}stream_config" (
    id integer primary key autoincrement,
    system_id integer not null default 1 references "{schema}system_config" on delete cascade,
    name text not null unique,
    message_key text,
    partition_size integer not null check (partition_size >= 2),
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;

create table "{schema}stream_version_config" (
    stream_id integer not null references "{schema}stream_config" on delete cascade,
    schema_version integer not null check (schema_version >= 1),
    codec integer not null,
    shape text not null,
    shape_hash blob not null,
    json_schema text not null,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    primary key (stream_id, schema_version)
) strict, without rowid;

create table "{schema}consumer_group_config" (
    id integer primary key autoincrement,
    stream_id integer not null references "{schema}stream_config" on delete cascade,
    name text not null,
    delivery_mode text not null default 'competing' check (delivery_mode in ('competing', 'broadcast')),
    key_policy text not null check (key_policy in ('parallel', 'exclusive', 'ordered')),
    retry text not null,
    timeout_us integer not null,
    delivery_log text not null default 'off' check (delivery_log in ('off', 'failures', 'all')),
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    unique (stream_id, name)
) strict;

-- Expiry lives here and not on leases: renewing is one update of one row a process.
create table "{schema}presence" (
    id blob primary key,
    build text not null,
    process text not null,
    readable text not null,
    started_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    expires_at integer not null
) strict, without rowid;

create table "{schema}worker_config" (
    id integer primary key autoincrement,
    system_id integer references "{schema}system_config" on delete cascade,
    stream_id integer references "{schema}stream_config" on delete cascade,
    consumer_group_id integer references "{schema}consumer_group_config" on delete cascade,
    name text not null,
    metadata text not null default '{}',
    target_instances integer not null default 1 check (target_instances >= -1),
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    check ((system_id is not null) + (stream_id is not null) + (consumer_group_id is not null) = 1)
) strict;

create unique index "{schema}worker_config_system" on "{schema}worker_config" (system_id, name) where system_id is not null;
create unique index "{schema}worker_config_stream" on "{schema}worker_config" (stream_id, name) where stream_id is not null;
create unique index "{schema}worker_config_group" on "{schema}worker_config" (consumer_group_id, name) where consumer_group_id is not null;

-- Who runs a worker. An instance lives as long as its owner's presence: keeping it costs no write. The slots
-- below the target are the places that processes can take.
create table "{schema}worker_instance" (
    id integer primary key autoincrement,
    worker_id integer not null references "{schema}worker_config" on delete cascade,
    slot integer not null check (slot >= 0),
    token blob not null unique,
    presence_id blob not null,
    failures integer not null default 0,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    unique (worker_id, slot)
) strict;
create index "{schema}worker_instance_presence" on "{schema}worker_instance" (presence_id);

create table "{schema}schedule_config" (
    id integer primary key autoincrement,
    stream_id integer not null references "{schema}stream_config" on delete cascade,
    name text not null unique,
    expression text not null,
    payload text,
    payload_bytes blob,
    codec integer not null,
    schema_version integer not null,
    metadata text not null default '{}',
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    check ((payload is null) <> (payload_bytes is null))
) strict;

create table "{schema}schedule_cursor" (
    id integer primary key autoincrement,
    schedule_id integer not null unique references "{schema}schedule_config" on delete cascade,
    next_scheduled_at integer not null,
    last_scheduled_at integer
) strict;
