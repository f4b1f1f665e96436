-- Serves enqueue in the caller's transaction: is this the same store?
select value from penstock_meta where name = 'store';
