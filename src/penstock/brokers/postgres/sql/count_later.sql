-- Serves count: of the minute that is now, those not due yet.
select count(*) as jobs
  from penstock.job
 where lane = %(lane)s
   and state = 'ready'
   and minute = %(minute)s
   and run_at > %(now)s;
