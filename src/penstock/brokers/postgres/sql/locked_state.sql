-- Serves note: the state of a flow, about to be merged into.
select state from penstock.flow where id = %s for update;
