-- sqlstreams: wake.version
-- Another number whenever another connection, of any process, has committed.
pragma data_version
