-- sqlstreams: message.produce
-- Differs from postgres: no transaction id to own first, since writers are serial; the ids are a run that
-- ends with the last one. Also used in the caller's transaction.
-- $1 version, $2 codec, $3 the payloads behind each other, $4 JSON, one array a message: the payload's
-- first byte, from 1, and its length, routing key, message key, headers.
-- One text for any number of messages. No ORDER BY: a sort would carry the payloads.
insert into "{schema}message_log_{stream}" (schema_version, codec, routing_key, message_key, headers, payload)
select $1, $2, m.value ->> 2, m.value ->> 3, m.value ->> 4, cast(substr($3, m.value ->> 0, m.value ->> 1) as text)
from json_each($4) m
