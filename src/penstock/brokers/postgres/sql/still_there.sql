-- Serves wait: whether a connection that says nothing is still there.
select 1;
