-- What fails and why: by task, reason and the last line of the error without its numbers.
select task,
       reason,
       coalesce(
           regexp_replace(
               regexp_replace(rtrim(error, E' \n'), '^.*\n', ''), '[0-9]+', '#', 'g'
           ),
           reason
       ) as signature,
       count(*) as attempts,
       count(*) filter (where state = 'failed') as ended,
       min(ended_at) as first_at,
       max(ended_at) as last_at
  from attempts
 where state = 'failed'
    or reason in ('error', 'timeout', 'crashed', 'lost')
 group by 1, 2, 3;
