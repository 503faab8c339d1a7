-- sqlstreams: delayed.heads
-- $1 streams, a JSON array. The newest delayed id that was drawn in each: another number means that something was delayed.
select s.value as stream, q.seq as head
from json_each($1) s
join sqlite_sequence q on q.name = '{schema}delayed_message_' || s.value
