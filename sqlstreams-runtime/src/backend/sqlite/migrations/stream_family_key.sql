-- What the tables of a stream with a message key have besides. "{schema}" and "{stream}" are filled in when the stream is registered.
create index "{schema}message_log_{stream}_key" on "{schema}message_log_{stream}" (message_key, id);
