-- Shared tables, the functions that need the owner's rights, and nothing that belongs to one stream.
-- "{schema}" is filled in when the migration runs or is printed.

create table "{schema}".system_config (
    id smallint primary key default 1 check (id = 1),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);
insert into "{schema}".system_config default values;

create table "{schema}".stream_config (
    id bigint generated always as identity primary key,
    system_id smallint not null default 1 references "{schema}".system_config on delete cascade,
    name text not null unique,
    message_key text,
    partition_size bigint not null check (partition_size >= 2),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);

create table "{schema}".stream_version_config (
    stream_id bigint not null references "{schema}".stream_config on delete cascade,
    schema_version integer not null check (schema_version >= 1),
    codec smallint not null,
    shape text not null,
    shape_hash bytea not null,
    json_schema json not null,
    created_at timestamptz not null default now(),
    primary key (stream_id, schema_version)
);

create table "{schema}".consumer_group_config (
    id bigint generated always as identity primary key,
    stream_id bigint not null references "{schema}".stream_config on delete cascade,
    name text not null,
    delivery_mode text not null default 'competing' check (delivery_mode in ('competing', 'broadcast')),
    key_policy text not null check (key_policy in ('parallel', 'exclusive', 'ordered')),
    retry json not null,
    timeout_us bigint not null,
    delivery_log text not null default 'off' check (delivery_log in ('off', 'failures', 'all')),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (stream_id, name)
);

-- Expiry lives here and not on leases: renewing is one update of one row a process.
create table "{schema}".presence (
    id uuid primary key,
    build text not null,
    process text not null,
    readable json not null,
    started_at timestamptz not null default now(),
    expires_at timestamptz not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table "{schema}".worker_config (
    id bigint generated always as identity primary key,
    system_id smallint references "{schema}".system_config on delete cascade,
    stream_id bigint references "{schema}".stream_config on delete cascade,
    consumer_group_id bigint references "{schema}".consumer_group_config on delete cascade,
    name text not null,
    metadata json not null default '{}',
    target_instances integer not null default 1 check (target_instances >= -1),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    check (num_nonnulls(system_id, stream_id, consumer_group_id) = 1)
);
create unique index on "{schema}".worker_config (system_id, name) where system_id is not null;
create unique index on "{schema}".worker_config (stream_id, name) where stream_id is not null;
create unique index on "{schema}".worker_config (consumer_group_id, name) where consumer_group_id is not null;

-- Who runs a worker. An instance lives as long as its owner's presence: keeping it costs no write. The slots
-- below the target are the places that processes can take.
create table "{schema}".worker_instance (
    id bigint generated always as identity primary key,
    worker_id bigint not null references "{schema}".worker_config on delete cascade,
    slot integer not null check (slot >= 0),
    token uuid not null unique,
    presence_id uuid not null,
    failures integer not null default 0,
    created_at timestamptz not null default now(),
    unique (worker_id, slot)
);
create index on "{schema}".worker_instance (presence_id);

create table "{schema}".schedule_config (
    id bigint generated always as identity primary key,
    stream_id bigint not null references "{schema}".stream_config on delete cascade,
    name text not null unique,
    expression text not null,
    payload json,
    payload_bytes bytea,
    codec smallint not null,
    schema_version integer not null,
    metadata json not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    check (num_nonnulls(payload, payload_bytes) = 1)
);

create table "{schema}".schedule_cursor (
    id bigint generated always as identity primary key,
    schedule_id bigint not null unique references "{schema}".schedule_config on delete cascade,
    next_scheduled_at timestamptz not null,
    last_scheduled_at timestamptz
);

-- Which roles were granted what: streams that are created later are granted to them as well.
create table "{schema}".role_grant (
    role name not null,
    kind text not null check (kind in ('produce', 'consume', 'admin')),
    created_at timestamptz not null default now(),
    primary key (role, kind)
);

-- Partition n of a stream holds the ids [n * size, (n + 1) * size). LIKE, CHECK and ATTACH: unlike
-- PARTITION OF this waits for no open producer. Answers whether the partition is new. The lock is the stream's and
-- not the partition's: ATTACH locks the parent, and two that each add several would wait for each other.
create function "{schema}".partition_add(p_stream_id bigint, p_number bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    size bigint;
    parent text := format('message_log_%s', p_stream_id);
    leaf text := format('message_log_%s_%s', p_stream_id, p_number);
begin
    select partition_size into strict size from "{schema}".stream_config where id = p_stream_id;
    perform pg_advisory_xact_lock(hashtextextended(format('%s.%s', '{schema}', parent), 0));
    if to_regclass(format('%I.%I', '{schema}', leaf)) is not null then
        return false;
    end if;
    execute format('create table %I.%I (like %I.%I including defaults including constraints)', '{schema}', leaf, '{schema}', parent);
    execute format('alter table %I.%I add constraint bounds check (id >= %s and id < %s)', '{schema}', leaf, p_number * size, (p_number + 1) * size);
    execute format('alter table %I.%I attach partition %I.%I for values from (%s) to (%s)', '{schema}', parent, '{schema}', leaf, p_number * size, (p_number + 1) * size);
    execute format('alter table %I.%I drop constraint bounds', '{schema}', leaf);
    return true;
end
$body$;

-- Keeps two partitions ahead of the id that the stream draws next, or of p_room ids more; adds at most a hundred, so
-- call it again until the answer stays the same. Answers the first id that no partition covers.
create function "{schema}".partition_ensure(p_stream_id bigint, p_room bigint default 0) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    size bigint;
    next_id bigint;
    final bigint;
    added integer := 0;
begin
    select partition_size into strict size from "{schema}".stream_config where id = p_stream_id;
    execute format('select last_value + case when is_called then 1 else 0 end from %I.%I', '{schema}', format('message_log_%s_id_seq', p_stream_id)) into next_id;
    final := (next_id + p_room) / size + 2;
    for number in next_id / size .. final loop
        if "{schema}".partition_add(p_stream_id, number) then
            added := added + 1;
        end if;
        if added = 100 then
            return (number + 1) * size;
        end if;
    end loop;
    return (final + 1) * size;
end
$body$;

-- What a role of a kind needs on one stream's tables. Never on a partition: rights on the log are its parent's.
create function "{schema}".stream_grant(p_stream_id bigint, p_role name, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    execute replace(replace(case p_kind
        -- An id comes back from an insert; payloads can't be read. With an idempotency key or a delay, an id is drawn
        -- before it is known whether its message is new.
        when 'produce' then $grant$
            grant insert (id, schema_version, codec, routing_key, message_key, headers, payload, payload_bytes), select (id)
                on "{schema}"."message_log_#" to @;
            grant usage on sequence "{schema}"."message_log_#_id_seq", "{schema}"."delayed_message_#_id_seq" to @;
            grant insert, delete, select (id, idempotency_key) on "{schema}"."delayed_message_#" to @;
            grant select, insert, delete on "{schema}"."idempotency_key_#" to @;
        $grant$
        -- Without the sequence, claims would see no head and wait for ever.
        when 'consume' then $grant$
            grant select on "{schema}"."message_log_#" to @;
            grant select on sequence "{schema}"."message_log_#_id_seq" to @;
            grant usage on sequence "{schema}"."claim_lease_#_lid_seq" to @;
            grant select, insert, update, delete on "{schema}"."consumer_group_cursor_#", "{schema}"."claim_lease_#",
                "{schema}"."parked_range_#", "{schema}"."exception_queue_#" to @;
            grant select on "{schema}"."exception_payload_#" to @;
            grant select, insert on "{schema}"."delivery_log_#" to @;
            grant select, insert, delete on "{schema}"."binding_config_#" to @;
        $grant$
        when 'admin' then $grant$
            grant select, insert on "{schema}"."message_log_#" to @;
            grant select, usage on sequence "{schema}"."message_log_#_id_seq", "{schema}"."delayed_message_#_id_seq" to @;
            grant usage on sequence "{schema}"."claim_lease_#_lid_seq" to @;
            grant select, insert, update, delete on "{schema}"."consumer_group_cursor_#", "{schema}"."claim_lease_#",
                "{schema}"."claim_slot_#", "{schema}"."claim_done_#", "{schema}"."parked_range_#",
                "{schema}"."exception_queue_#", "{schema}"."exception_payload_#", "{schema}"."delayed_message_#",
                "{schema}"."delivery_log_#", "{schema}"."binding_config_#", "{schema}"."message_key_lease_#",
                "{schema}"."idempotency_key_#", "{schema}"."compaction_head_#" to @;
        $grant$
    end, '#', p_stream_id::text), '@', quote_ident(p_role));
end
$body$;

-- Gives a role what a kind of process needs: on the shared tables, on every stream, and on the streams to come.
-- For the owner. The lock is stream_create's: a stream that is being created is granted here or there.
create function "{schema}".grant_role(p_role text, p_kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    if p_kind is null or p_kind not in ('produce', 'consume', 'admin') then
        raise exception 'a role is granted produce, consume or admin, and not "%"', p_kind using errcode = 'invalid_parameter_value';
    end if;
    if not exists (select from pg_roles where rolname = p_role) then
        raise exception 'role "%" does not exist', p_role using errcode = 'undefined_object', hint = 'Create it first.';
    end if;
    perform pg_advisory_xact_lock(hashtextextended('{schema}.stream_create', 0));
    insert into "{schema}".role_grant (role, kind) values (p_role, p_kind) on conflict do nothing;
    execute replace($grant$
        grant usage on schema "{schema}" to @;
        grant select on "{schema}".migration_log, "{schema}".stream_config, "{schema}".stream_version_config to @;
    $grant$ || case p_kind
        when 'produce' then $grant$
            grant execute on function "{schema}".partition_ensure(bigint, bigint),
                "{schema}".produce(text, json, integer, text, text, json) to @;
        $grant$
        when 'consume' then $grant$
            grant select, insert, update on "{schema}".consumer_group_config, "{schema}".presence to @;
        $grant$
        else $grant$
            grant execute on function "{schema}".partition_ensure(bigint, bigint),
                "{schema}".produce(text, json, integer, text, text, json),
                "{schema}".stream_create(text, text, bigint) to @;
            grant insert on "{schema}".stream_version_config to @;
            grant select on "{schema}".system_config, "{schema}".role_grant to @;
            grant select, insert, update, delete on "{schema}".consumer_group_config, "{schema}".presence,
                "{schema}".worker_config, "{schema}".worker_instance, "{schema}".schedule_config,
                "{schema}".schedule_cursor to @;
        $grant$
    end, '@', quote_ident(p_role));
    perform "{schema}".stream_grant(id, p_role, p_kind) from "{schema}".stream_config;
end
$body$;

-- Takes everything back that grant_role gave a role, of every kind. For the owner. A role that is gone is forgotten.
create function "{schema}".revoke_role(p_role text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
    perform pg_advisory_xact_lock(hashtextextended('{schema}.stream_create', 0));
    delete from "{schema}".role_grant where role = p_role;
    if exists (select from pg_roles where rolname = p_role) then
        execute replace($revoke$
            revoke all on all tables in schema "{schema}" from @;
            revoke all on all sequences in schema "{schema}" from @;
            revoke all on all functions in schema "{schema}" from @;
            revoke all on schema "{schema}" from @;
        $revoke$, '@', quote_ident(p_role));
    end if;
end
$body$;

-- created_at is when a message entered its log: retention counts from there. A message that was delayed says
-- besides when it was produced, and for when.
-- Creates a stream's tables once; answers its id, also when another process was first.
create function "{schema}".stream_create(p_name text, p_message_key text, p_partition_size bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    stream bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended('{schema}.stream_create', 0));
    select id into stream from "{schema}".stream_config where name = p_name;
    if found then
        return stream;
    end if;
    insert into "{schema}".stream_config (name, message_key, partition_size)
    values (p_name, p_message_key, p_partition_size) returning id into stream;
    execute replace($family$
        create table "{schema}"."message_log_#" (
            id bigint generated always as identity primary key,
            created_at timestamptz not null default now(),
            schema_version integer not null,
            codec smallint not null,
            routing_key text,
            message_key text,
            headers json,
            payload json,
            payload_bytes bytea,
            produced_at timestamptz,
            scheduled_at timestamptz,
            constraint one_payload check ((payload is null) <> (payload_bytes is null))
        ) partition by range (id);

        create table "{schema}"."consumer_group_cursor_#" (
            consumer_group_id bigint not null references "{schema}".consumer_group_config on delete cascade,
            seq bigint not null,
            epoch bigint not null,
            claimed bigint not null,
            committed bigint not null,
            proven_head bigint not null,
            pending_head bigint,
            pending_xid xid8,
            exact_head bigint,
            exact_xids xid8[],
            replay_until bigint,
            paused_until timestamptz,
            primary key (consumer_group_id, seq)
        ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

        create table "{schema}"."claim_lease_#" (
            token uuid primary key,
            lid bigint generated always as identity unique,
            consumer_group_id bigint not null,
            seq bigint not null,
            presence_id uuid,
            low bigint not null,
            high bigint not null,
            schema_version integer,
            reclaims integer not null default 0,
            done int8multirange not null default '{}',
            probe int8range,
            replay_until bigint,
            claimed_at timestamptz not null default clock_timestamp()
        ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
        create index on "{schema}"."claim_lease_#" (presence_id);

        create table "{schema}"."claim_slot_#" (
            token uuid not null,
            slot integer not null,
            primary key (token, slot)
        );
        create table "{schema}"."claim_done_#" (
            lid bigint not null,
            message_id bigint not null,
            primary key (lid, message_id)
        );

        create table "{schema}"."parked_range_#" (
            id bigint generated always as identity primary key,
            consumer_group_id bigint not null,
            schema_version integer not null,
            low bigint not null,
            high bigint not null,
            replay_until bigint,
            created_at timestamptz not null default clock_timestamp(),
            updated_at timestamptz not null default clock_timestamp()
        );
        create index on "{schema}"."parked_range_#" (consumer_group_id, schema_version, high);

        create table "{schema}"."exception_queue_#" (
            consumer_group_id bigint not null,
            message_id bigint not null,
            status text not null check (status in ('ready', 'inflight', 'deferred', 'dead', 'superseded')),
            schema_version integer not null,
            message_key text,
            held_to bigint,
            ticket bigint,
            ticket_number bigint,
            policy json,
            attempts integer not null default 0,
            failures integer not null default 0,
            failures_total integer not null default 0,
            kills integer not null default 0,
            delays integer not null default 0,
            redrives integer not null default 0,
            can_run_after timestamptz,
            first_failed_at timestamptz,
            died_at timestamptz,
            last_error text,
            replay_until bigint,
            token uuid,
            presence_id uuid,
            created_at timestamptz not null default clock_timestamp(),
            updated_at timestamptz not null default clock_timestamp(),
            primary key (consumer_group_id, message_id)
        ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
        create index on "{schema}"."exception_queue_#" (consumer_group_id, can_run_after) where status = 'ready';
        create index on "{schema}"."exception_queue_#" (consumer_group_id, can_run_after) where status = 'ready' and kills > 0;
        create index "exception_queue_#_open" on "{schema}"."exception_queue_#" (consumer_group_id, message_id) where status in ('ready', 'inflight', 'deferred');
        create index on "{schema}"."exception_queue_#" (consumer_group_id, message_key, message_id) where status in ('ready', 'inflight', 'deferred');
        create unique index on "{schema}"."exception_queue_#" (consumer_group_id, message_key) where held_to is not null;
        create index on "{schema}"."exception_queue_#" (presence_id) where status = 'inflight';
        create index on "{schema}"."exception_queue_#" (consumer_group_id, message_id) where status = 'dead';

        create table "{schema}"."exception_payload_#" (
            message_id bigint primary key,
            created_at timestamptz not null,
            schema_version integer not null,
            codec smallint not null,
            routing_key text,
            message_key text,
            headers json,
            payload json,
            payload_bytes bytea,
            produced_at timestamptz,
            scheduled_at timestamptz,
            copied_at timestamptz not null default clock_timestamp()
        );

        create table "{schema}"."delayed_message_#" (
            id bigint generated always as identity unique,
            deliver_at timestamptz not null,
            created_at timestamptz not null default now(),
            schema_version integer not null,
            codec smallint not null,
            routing_key text,
            message_key text,
            headers json,
            payload json,
            payload_bytes bytea,
            idempotency_key bytea,
            primary key (deliver_at, id)
        ) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

        create table "{schema}"."delivery_log_#" (
            id bigint generated always as identity primary key,
            consumer_group_id bigint not null,
            message_id bigint not null,
            attempt integer not null,
            status text not null,
            error text,
            attempted_at timestamptz not null default clock_timestamp()
        );
        create index on "{schema}"."delivery_log_#" (consumer_group_id, message_id, id);

        create table "{schema}"."binding_config_#" (
            consumer_group_id bigint not null references "{schema}".consumer_group_config on delete cascade,
            pattern text not null,
            primary key (consumer_group_id, pattern)
        );

        create table "{schema}"."message_key_lease_#" (
            consumer_group_id bigint not null,
            message_key text not null,
            seq bigint not null,
            token uuid,
            presence_id uuid,
            primary key (consumer_group_id, message_key, seq)
        );

        create table "{schema}"."idempotency_key_#" (
            key bytea primary key,
            message_id bigint,
            delayed_id bigint,
            payload_hash bytea not null,
            expires_at timestamptz not null
        );
        create index on "{schema}"."idempotency_key_#" (expires_at);

        create table "{schema}"."compaction_head_#" (
            message_key text primary key,
            message_id bigint,
            schema_version integer,
            compaction_rank bigint,
            created_at timestamptz not null default now(),
            updated_at timestamptz not null default now(),
            check (num_nulls(message_id, schema_version, compaction_rank) in (0, 3))
        );
    $family$, '#', stream::text);
    if p_message_key is not null then
        execute format('create index on %I.%I (message_key, id)', '{schema}', format('message_log_%s', stream));
    end if;
    perform "{schema}".partition_ensure(stream);
    perform "{schema}".stream_grant(stream, g.role, g.kind)
    from "{schema}".role_grant g
    where exists (select from pg_roles r where r.rolname = g.role);
    return stream;
end
$body$;

-- The way into a stream for psql, triggers and other languages: owns a transaction id before it draws a
-- message id, which a plain INSERT does not. Answers the message's id.
create function "{schema}".produce(
    p_stream text,
    p_payload json,
    p_schema_version integer default 1,
    p_routing_key text default null,
    p_message_key text default null,
    p_headers json default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
    stream bigint;
    message bigint;
begin
    select id into stream from "{schema}".stream_config where name = p_stream;
    if not found then
        raise exception 'stream "%" is not registered in schema "%"', p_stream, '{schema}' using errcode = 'undefined_object';
    end if;
    execute format(
        'with x as materialized (select pg_current_xact_id() as xid)
         insert into %I.%I (schema_version, codec, routing_key, message_key, headers, payload)
         select $1, 0, $2, $3, $4, $5 from x where x.xid is not null returning id',
        '{schema}', format('message_log_%s', stream))
    into message using p_schema_version, p_routing_key, p_message_key, p_headers, p_payload;
    return message;
end
$body$;

revoke all on function "{schema}".partition_add(bigint, bigint) from public;
revoke all on function "{schema}".partition_ensure(bigint, bigint) from public;
revoke all on function "{schema}".stream_create(text, text, bigint) from public;
revoke all on function "{schema}".stream_grant(bigint, name, text) from public;
revoke all on function "{schema}".grant_role(text, text) from public;
revoke all on function "{schema}".revoke_role(text) from public;
revoke all on function "{schema}".produce(text, json, integer, text, text, json) from public;
