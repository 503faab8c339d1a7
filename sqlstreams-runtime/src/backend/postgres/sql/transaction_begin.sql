-- sqlstreams: transaction.begin
begin isolation level read committed
