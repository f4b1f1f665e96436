-- Serves retry: nobody else counts in this flow until the end of the transaction. One writer at a
-- time has the file to itself, so a look is enough.
select id from penstock_flow where id = ?;
