-- Serves every connection now and then: what time it is by the server.
select extract(epoch from clock_timestamp())::double precision;
