-- Serves note: the state of a flow, about to be merged into. One writer at a time has the file to
-- itself, so a look is enough.
select state from penstock_flow where id = ?;
