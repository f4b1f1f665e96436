-- Serves claim, recover and prune: ready jobs whose time to start is over.
select * from penstock.expired(%(now)s);
