-- Serves settle: jobs with rows of their own succeeded; see functions/succeed.sql.
select penstock.succeed_rows($1, $2, $3, $4, $5, $6, $7, $8);
