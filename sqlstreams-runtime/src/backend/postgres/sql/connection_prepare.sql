-- sqlstreams: connection.prepare
-- A commit of ours is on the disk, unless its statement says otherwise: a database or a role whose default is
-- asynchronous would lose counts and settlements. Other settings, also stronger ones, stay.
select set_config('synchronous_commit', 'on', false)
where current_setting('synchronous_commit') = 'off'
