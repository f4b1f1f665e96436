-- Serves the benchmark: the first statement of a transaction takes its snapshot.
select count(*) from penstock.meta;
