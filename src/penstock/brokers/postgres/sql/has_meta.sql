-- Serves every open: whether Penstock has been here before.
select to_regclass('penstock.meta') is not null;
