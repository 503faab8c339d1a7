-- sqlstreams: worker.list
-- $1 now or null. Every worker, with how many processes run it.
select w.id, w.name, s.name as stream, g.name as consumer_group, w.target_instances, (
    select count(*)
    from "{schema}".worker_instance i
    join "{schema}".presence p on p.id = i.presence_id
    where i.worker_id = w.id and (w.target_instances < 0 or i.slot < w.target_instances)
        and p.expires_at > coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', clock_timestamp())
) as running
from "{schema}".worker_config w
left join "{schema}".consumer_group_config g on g.id = w.consumer_group_id
left join "{schema}".stream_config s on s.id = coalesce(w.stream_id, g.stream_id)
order by w.id
