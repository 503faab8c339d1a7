-- sqlstreams: transaction.begin
-- Immediate: a transaction that turns to writing later fails at once when another one has written meanwhile.
begin immediate
