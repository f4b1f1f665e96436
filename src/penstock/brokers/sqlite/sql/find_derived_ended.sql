-- Serves find, as find_derived, when only failed and cancelled ones are asked for.
select *
  from penstock_job
 where id >= x'ff000000000000000000000000000000'
   and (enqueued_at, id) < (:at, :derived)
   and state in ('failed', 'cancelled')
   and (:lanes is null or lane in (select value from json_each(:lanes)))
 order by enqueued_at desc, id desc
 limit :most;
