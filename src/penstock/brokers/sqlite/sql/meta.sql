-- Serves every open: the schema's number and the store's id.
select name, value from penstock_meta;
