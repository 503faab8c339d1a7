-- sqlstreams: transaction.begin_settings
-- What a session of the engine is started with, and connection.prepare, for one transaction: behind a pooler, a
-- session is somebody else's a moment later. A client that freezes inside a transaction holds what the transaction
-- locked, so it may not for long.
select set_config('lock_timeout', '5s', true),
    set_config('statement_timeout', '60s', true),
    set_config('idle_in_transaction_session_timeout', '5s', true),
    set_config('client_min_messages', 'warning', true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('jit', 'off', true),
    case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
