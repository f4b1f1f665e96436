-- Serves settle: packed jobs of one lease succeeded; see functions/succeed.sql.
select penstock.succeed($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
