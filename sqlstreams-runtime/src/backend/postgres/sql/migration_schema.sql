-- sqlstreams: migration.schema
create schema if not exists "{schema}"
