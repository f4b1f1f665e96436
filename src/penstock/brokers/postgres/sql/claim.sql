-- Hand due jobs to a worker; see functions/claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
