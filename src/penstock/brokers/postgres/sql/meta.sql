-- Serves every open: what the store says of itself.
select name, value from penstock.meta;
