-- Serves slices: the first and the last position of the history.
select (select min(position) from penstock_history) as first,
       (select max(position) from penstock_history) as last;
