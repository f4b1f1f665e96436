-- As settle_and_claim, for jobs of one node; see functions/settle_members_and_claim.sql.
select lane, lease, firsts, counts, lengths, bodies, job_rows, news
  from penstock.settle_members_and_claim(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
    $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26
  );
