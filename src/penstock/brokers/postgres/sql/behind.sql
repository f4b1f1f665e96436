-- Serves why in an ordered queue: what stands before a job of this key: one that runs, and the first
-- ready and the first failed one.
with line as (
    select j.id, j.state
      from json_array_elements_text(%(lanes)s::json) as l (hash)
      join penstock.job j
        on j.lane = l.hash::bigint
       and coalesce(hashtextextended(nullif(j.key, ''), 0), 0) = hashtextextended(%(key)s, 0)
     where j.key is not null
       and j.state in ('failed', 'ready', 'running')
       and j.key = %(key)s
)
select (select id from line where state = 'running' and id <> %(id)s order by id limit 1) as running,
       (select id from line where state = 'ready' and id < %(id)s order by id limit 1) as ready,
       (select id from line where state = 'failed' and id < %(id)s order by id limit 1) as failed;
