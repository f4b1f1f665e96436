-- Serves the benchmark: what one job costs the store itself.
insert into raw (id, lane, body)
values (?, ?, ?);
