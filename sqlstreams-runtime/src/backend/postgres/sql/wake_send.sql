-- sqlstreams: wake.send
-- $1 channel, $2 the streams' ids. Never inside a producing transaction: a commit that notifies takes a server-wide lock.
select pg_notify($1, $2)
