-- Serves doctor: rows that a fold would take away; no more are looked at than worth saying.
select count(*) - count(distinct (lane, state, minute)) as unfolded
  from (select lane, state, minute from penstock.tally limit 200000) as few;
