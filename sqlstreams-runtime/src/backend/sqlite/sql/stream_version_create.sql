-- sqlstreams: stream_version.create
-- $1 stream, $2 version, $3 codec, $4 shape, $5 hash, $6 JSON Schema. The first build to declare a version wins.
insert into "{schema}stream_version_config" (stream_id, schema_version, codec, shape, shape_hash, json_schema)
values ($1, $2, $3, $4, $5, $6)
on conflict (stream_id, schema_version) do nothing
