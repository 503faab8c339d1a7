-- sqlstreams: durability.level
-- 2 is FULL: a commit is on the disk when it returns.
pragma synchronous
