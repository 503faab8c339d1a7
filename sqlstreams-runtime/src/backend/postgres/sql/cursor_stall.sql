-- sqlstreams: cursor.stall
-- Who holds the producers' lock on the log's parent now. Other roles' start times are hidden from an
-- ordinary role, so the age is for the caller to keep.
select distinct
    x.transactionid::text as transaction,
    l.pid,
    coalesce(nullif(p.gid, ''), nullif(a.application_name, ''), 'unnamed') as name,
    p.gid is not null as prepared
from pg_catalog.pg_locks l
join pg_catalog.pg_locks x
    on x.virtualtransaction = l.virtualtransaction
    and x.locktype = 'transactionid' and x.mode = 'ExclusiveLock' and x.granted
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
left join pg_catalog.pg_prepared_xacts p on p.transaction = x.transactionid
where l.locktype = 'relation'
    and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
    and l.relation = '"{schema}"."message_log_{stream}"'::regclass
    and l.mode = 'RowExclusiveLock'
    and l.granted
order by 1
