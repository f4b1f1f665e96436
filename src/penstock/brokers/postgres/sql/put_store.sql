-- Serves migrate: what tells this store from any other.
insert into penstock.meta (name, value)
values ('store', gen_random_uuid()::text);
