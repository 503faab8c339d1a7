-- sqlstreams: connection.look
-- Which server this is, who started its session, and whether the engine's settings hold in it.
select pg_backend_pid() as pid,
    current_setting('sqlstreams.client', true) as mark,
    current_setting('enable_seqscan') = 'off' and current_setting('transaction_isolation') = 'read committed' as prepared
