-- sqlstreams: stream.find
-- $1 name, $2 version. A role without the owner's functions can join a stream that exists.
select s.id, s.message_key, s.partition_size, v.shape, v.codec
from "{schema}".stream_config s
left join "{schema}".stream_version_config v on v.stream_id = s.id and v.schema_version = $2
where s.name = $1
