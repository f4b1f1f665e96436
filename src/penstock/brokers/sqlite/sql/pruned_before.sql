-- Serves enqueue: ids from before this time are no longer remembered, so they are refused.
select value from penstock_meta where name = 'pruned_before';
