-- sqlstreams: transaction.commit
commit
