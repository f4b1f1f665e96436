-- Serves scan: jobs of a span of ids that succeeded and are kept.
select *
  from penstock_history
 where job is not null
   and job > :after
   and job <= :until
   and kind = 'attempt'
   and state = 'succeeded'
   and body is not null
   and (:lanes is null or lane in (select value from json_each(:lanes)));
