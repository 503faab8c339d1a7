-- sqlstreams: wake.heads
-- Every stream's newest id, as a JSON object.
select json_group_object(substr(name, length('{schema}message_log_') + 1), seq) as heads
from sqlite_sequence
where name glob '{schema}message_log_*'
