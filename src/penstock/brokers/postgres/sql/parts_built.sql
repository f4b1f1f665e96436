-- Serves migrate: nothing is left to build.
delete from penstock.meta where name = 'parts';
