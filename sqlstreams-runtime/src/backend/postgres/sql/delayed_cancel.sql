-- sqlstreams: delayed.cancel
-- $1 delayed id. Waits for a promotion that is under way, and changes nothing after it. The idempotency key is free
-- again: what it stood for does not happen. Also used in the caller's transaction.
with gone as (
    delete from "{schema}"."delayed_message_{stream}"
    where id = $1
    returning idempotency_key
),
freed as (
    delete from "{schema}"."idempotency_key_{stream}"
    where key = (select idempotency_key from gone) and delayed_id = $1
)
select count(*) as cancelled from gone
