-- sqlstreams: transaction.rollback
rollback
