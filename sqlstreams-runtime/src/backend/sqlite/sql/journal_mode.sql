-- sqlstreams: journal.mode
pragma journal_mode
