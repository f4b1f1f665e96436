-- Every mark.
select * from penstock.mark;
