-- Serves claim: the lanes with work; see functions/look.sql.
select lane, first, jobs, run_at, news from penstock.busy_lanes($1, $2, $3, $4, $5);
