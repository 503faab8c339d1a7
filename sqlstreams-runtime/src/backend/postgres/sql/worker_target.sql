-- sqlstreams: worker.target
-- $1 worker, $2 how many processes run it; 0 suspends it.
update "{schema}".worker_config
set target_instances = $2, updated_at = now()
where id = $1
