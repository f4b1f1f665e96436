-- Every mark.
select declared from penstock_mark;
