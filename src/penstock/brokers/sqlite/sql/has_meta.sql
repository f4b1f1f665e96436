-- Serves every open: whether Penstock has been here before.
select count(*) from sqlite_master where type = 'table' and name = 'penstock_meta';
