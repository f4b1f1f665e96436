-- Serves set_mark and prune: nothing to do, there is one writer at a time.
select 1;
