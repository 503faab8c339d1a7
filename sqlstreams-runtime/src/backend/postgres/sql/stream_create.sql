-- sqlstreams: stream.create
-- $1 name, $2 key field, $3 partition size.
select "{schema}".stream_create($1, $2, $3) as id
