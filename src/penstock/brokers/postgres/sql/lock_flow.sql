-- Serves retry: nobody else counts in this flow until the end of the transaction.
select id from penstock.flow where id = %s for update;
