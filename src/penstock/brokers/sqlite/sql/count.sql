-- How many jobs stand where, by lane, state and the minute they are due.
select lane, state, minute, jobs from penstock_tally where jobs <> 0;
