-- Serves claim: the rows that it handed out.
select * from penstock.job where id = any(%s);
