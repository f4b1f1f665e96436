-- Every mark.
select * from penstock_mark;
