-- Serves the benchmark: what one job costs the server itself.
insert into raw (id, lane, body)
values (%b, %b, %b);
