-- The tables of one stream. "{schema}" and "{stream}" are filled in when a stream is registered.

-- Autoincrement: a log that retention emptied goes on with higher ids; without it they would begin again,
-- below the cursors, and be lost.
-- created_at is when a message entered the log: retention counts from there. A message that was delayed says
-- besides when it was produced, and for when.
create table "{schema}message_log_{stream}" (
    id integer primary key autoincrement,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    schema_version integer not null,
    codec integer not null,
    routing_key text,
    message_key text,
    headers text,
    payload text,
    payload_bytes blob,
    produced_at integer,
    scheduled_at integer,
    constraint one_payload check ((payload is null) <> (payload_bytes is null))
) strict;

-- Writers are serial, so that the newest id is always proven, and no held snapshot makes an update slow:
-- one row a group, updated in place.
create table "{schema}consumer_group_cursor_{stream}" (
    consumer_group_id integer primary key references "{schema}consumer_group_config" on delete cascade,
    seq integer not null,
    epoch integer not null,
    claimed integer not null,
    committed integer not null,
    replay_until integer,
    paused_until integer
) strict;

create table "{schema}claim_lease_{stream}" (
    lid integer primary key,
    token blob not null unique,
    consumer_group_id integer not null,
    seq integer not null,
    presence_id blob,
    low integer not null,
    high integer not null,
    schema_version integer,
    reclaims integer not null default 0,
    done text not null default '[]',
    probe text,
    replay_until integer,
    claimed_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;
create index "{schema}claim_lease_{stream}_group" on "{schema}claim_lease_{stream}" (consumer_group_id, low);
create index "{schema}claim_lease_{stream}_presence" on "{schema}claim_lease_{stream}" (presence_id);

create table "{schema}claim_slot_{stream}" (
    token blob not null,
    slot integer not null,
    primary key (token, slot)
) strict, without rowid;

create table "{schema}claim_done_{stream}" (
    lid integer not null,
    message_id integer not null,
    primary key (lid, message_id)
) strict, without rowid;

create table "{schema}parked_range_{stream}" (
    id integer primary key,
    consumer_group_id integer not null,
    schema_version integer not null,
    low integer not null,
    high integer not null,
    replay_until integer,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;
create index "{schema}parked_range_{stream}_group" on "{schema}parked_range_{stream}" (consumer_group_id, schema_version, high);

create table "{schema}exception_queue_{stream}" (
    consumer_group_id integer not null,
    message_id integer not null,
    status text not null check (status in ('ready', 'inflight', 'deferred', 'dead', 'superseded')),
    schema_version integer not null,
    message_key text,
    held_to integer,
    ticket integer,
    ticket_number integer,
    policy text,
    attempts integer not null default 0,
    failures integer not null default 0,
    failures_total integer not null default 0,
    kills integer not null default 0,
    delays integer not null default 0,
    redrives integer not null default 0,
    can_run_after integer,
    first_failed_at integer,
    died_at integer,
    last_error text,
    replay_until integer,
    token blob,
    presence_id blob,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    primary key (consumer_group_id, message_id)
) strict, without rowid;
create index "{schema}exception_queue_{stream}_due" on "{schema}exception_queue_{stream}" (consumer_group_id, can_run_after) where status = 'ready';
create index "{schema}exception_queue_{stream}_suspect" on "{schema}exception_queue_{stream}" (consumer_group_id, can_run_after) where status = 'ready' and kills > 0;
create index "{schema}exception_queue_{stream}_open" on "{schema}exception_queue_{stream}" (consumer_group_id, message_id) where status in ('ready', 'inflight', 'deferred');
create index "{schema}exception_queue_{stream}_key" on "{schema}exception_queue_{stream}" (consumer_group_id, message_key, message_id) where status in ('ready', 'inflight', 'deferred');
create unique index "{schema}exception_queue_{stream}_lane" on "{schema}exception_queue_{stream}" (consumer_group_id, message_key) where held_to is not null;
create index "{schema}exception_queue_{stream}_inflight" on "{schema}exception_queue_{stream}" (consumer_group_id, message_id) where status = 'inflight';
create index "{schema}exception_queue_{stream}_dead" on "{schema}exception_queue_{stream}" (consumer_group_id, message_id) where status = 'dead';

create table "{schema}exception_payload_{stream}" (
    message_id integer primary key,
    created_at integer not null,
    schema_version integer not null,
    codec integer not null,
    routing_key text,
    message_key text,
    headers text,
    payload text,
    payload_bytes blob,
    produced_at integer,
    scheduled_at integer,
    copied_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;

create table "{schema}delayed_message_{stream}" (
    id integer primary key autoincrement,
    deliver_at integer not null,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    schema_version integer not null,
    codec integer not null,
    routing_key text,
    message_key text,
    headers text,
    payload text,
    payload_bytes blob,
    idempotency_key blob
) strict;
create index "{schema}delayed_message_{stream}_due" on "{schema}delayed_message_{stream}" (deliver_at, id);

create table "{schema}delivery_log_{stream}" (
    id integer primary key autoincrement,
    consumer_group_id integer not null,
    message_id integer not null,
    attempt integer not null,
    status text not null,
    error text,
    attempted_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)
) strict;
create index "{schema}delivery_log_{stream}_message" on "{schema}delivery_log_{stream}" (consumer_group_id, message_id, id);

create table "{schema}binding_config_{stream}" (
    consumer_group_id integer not null references "{schema}consumer_group_config" on delete cascade,
    pattern text not null,
    primary key (consumer_group_id, pattern)
) strict, without rowid;

create table "{schema}message_key_lease_{stream}" (
    consumer_group_id integer not null,
    message_key text not null,
    seq integer not null,
    token blob,
    presence_id blob,
    primary key (consumer_group_id, message_key, seq)
) strict, without rowid;

create table "{schema}idempotency_key_{stream}" (
    key blob primary key,
    message_id integer,
    delayed_id integer,
    payload_hash blob not null,
    expires_at integer not null
) strict, without rowid;
create index "{schema}idempotency_key_{stream}_expiry" on "{schema}idempotency_key_{stream}" (expires_at);

create table "{schema}compaction_head_{stream}" (
    message_key text primary key,
    message_id integer,
    schema_version integer,
    compaction_rank integer,
    created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    updated_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    check ((message_id is null) + (schema_version is null) + (compaction_rank is null) in (0, 3))
) strict, without rowid;
