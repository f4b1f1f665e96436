-- Every mark.
select declared from penstock.mark;
