-- Forget what was kept long enough, and make room for days to come.

-- name: prune
-- Forget old rows of the history that every lake has, but for what is to be kept longer.
delete from penstock.history h
 using (
    select tableoid, ctid
      from penstock.history
     where at < %(before)s
       and position <= %(lowest)s
       and (keep_until is null or keep_until <= %(now)s)
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;

-- name: prune_past
-- Old rows that not every lake has, and that none holds any more. By time first, so that what is
-- held for days is not read again by every prune.
delete from penstock.history h
 using (
    select o.tableoid, o.ctid
      from penstock.history o
     where o.at < %(past)s
       and o.position > %(lowest)s
       and (o.keep_until is null or o.keep_until <= %(now)s)
       and not exists (select 1
                         from penstock.mark m
                        where m.position < o.position
                          and o.at >= %(before)s - m.hold)
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;

-- name: past_hold
-- The rows behind a position that are about to go, because no lake holds them any more. By time
-- first, so that only the partitions of old days are looked at.
select count(*) as rows,
       max(h.position) as until
  from penstock.history h
 where h.at < %(past)s
   and h.position > %(known)s
   and (h.keep_until is null or h.keep_until <= %(now)s)
   and not exists (select 1
                     from penstock.mark m
                    where m.position < h.position
                      and h.at >= %(before)s - m.hold);

-- name: share_marks
-- No mark is set until the end of the transaction; others may prune meanwhile.
lock table penstock.mark in share mode;

-- name: old_days
-- The partitions of days that are over as a whole, and hold nothing to be kept longer, by itself or
-- for a lake.
select format('%%I.%%I', 'penstock', c.relname) as partition
  from pg_inherits i
  join pg_class c on c.oid = i.inhrelid
  join pg_class p on p.oid = i.inhparent
  join pg_namespace n on n.oid = p.relnamespace
 where n.nspname = 'penstock'
   and p.relname in ('sent', 'history')
   and (penstock.day_of(c.relname) + 1) * 86400.0 <= %(before)s
   and (p.relname = 'sent' or not exists (
        select 1
          from penstock.history h
         where h.at >= penstock.day_of(c.relname) * 86400.0
           and h.at < (penstock.day_of(c.relname) + 1) * 86400.0
           and h.keep_until > %(now)s
   ))
   and (p.relname = 'sent' or not exists (
        select 1
          from penstock.mark m
          join penstock.history h on h.position > m.position
         where h.at >= penstock.day_of(c.relname) * 86400.0
           and h.at < (penstock.day_of(c.relname) + 1) * 86400.0
           and h.at >= %(before)s - m.hold
   ))
 order by 1;

-- name: drop_day
-- Forget a day as a whole; see functions/drop_day.sql.
select penstock.drop_day(%s::regclass, %s) as rows;

-- name: make_day
-- Serves upkeep: the partitions of a day, counted from the epoch; see functions/days.sql.
select penstock.make_day(%s);

-- name: prune_bodies
-- Arguments and results whose own time is over; that they ran stays recorded.
update penstock.history h
   set body = null, result = null, keep_until = null
  from (
    select tableoid, ctid
      from penstock.history
     where keep_until <= %(now)s
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;

-- name: prune_jobs
-- Jobs that ended and were kept long enough; of those in flows, their place in it.
select id, lane, state, minute,
       case when position('"flow":'::bytea in body) > 0 then body end as body
  from penstock.job
 where state in ('failed', 'cancelled')
   and case when keep_until is null then ended_at < %(before)s else keep_until <= %(now)s end
 order by id
 limit %(most)s
   for update skip locked;

-- name: prune_sent
-- Ids that are refused from now on because of their age.
delete from penstock.sent
 where id in (
    select id
      from penstock.sent
     where id < penstock.first_id(%(before)s)
     limit %(most)s
 );

-- name: prune_derived
-- Derived ids, which hold no time, by that of their row and of what became of it.
delete from penstock.sent_derived
 where id in (
    select s.id
      from penstock.sent_derived s
     where s.at < %(before)s
       and not exists (select 1 from penstock.job j where j.id = s.id)
       and not exists (select 1 from penstock.history h where h.job = s.id and h.at >= %(before)s)
     limit %(most)s
 );

-- name: put_pruned
-- From now on ids from before this time are refused.
insert into penstock.meta as m (name, value) values ('pruned_before', %(before)s::double precision::text)
    on conflict (name) do update
   set value = greatest(m.value::double precision, excluded.value::double precision)::text;

-- name: prune_unique
-- Keys whose time is over.
delete from penstock.unique_key where expires_at <= %(now)s;

-- name: prune_batches
-- Batches nobody goes on with.
delete from penstock.batch where at < %(before)s;

-- name: prune_staged
-- Writes that nobody added to for a day, and nobody published.
select write
  from penstock.staged
 group by write
having max(at) < %(now)s - %(staged)s;

-- name: prune_published
-- Writes that nobody publishes again.
delete from penstock.published where at < %(before)s;

-- name: prune_starts
-- Starts that no window can hold any more; the longest is a day.
delete from penstock.start where made_at < %(now)s - 90000;

-- name: prune_workers
-- Workers that were given up long ago, and hold nothing that was stored after that.
delete from penstock.worker w
 where w.gone > 0
   and w.gone < %(before)s
   and not exists (select 1 from penstock.lease l where l.worker = w.id)
   and not exists (select 1 from penstock.job j where j.worker = w.id and j.state = 'running');

-- name: prune_notes
-- Notes of jobs of which nothing else is left.
delete from penstock.note
 where id in (
    select n.id
      from penstock.note n
     where not exists (select 1 from penstock.job j where j.id = n.job)
       and not exists (select 1 from penstock.history h where h.job = n.job)
       and not exists (
            select 1 from penstock.lease l where position(substr(uuid_send(n.job), 1, 14) in l.firsts) > 0
       )
     limit %(most)s
 );

-- name: prune_tags
-- Tags of jobs of which nothing else is left.
delete from penstock.tag t
 where (t.name, t.value, t.job) in (
    select o.name, o.value, o.job
      from penstock.tag o
     where not exists (select 1 from penstock.job j where j.id = o.job)
       and not exists (select 1 from penstock.history h where h.job = o.job)
     limit %(most)s
 );

-- name: fold
-- Serves upkeep: one row for all that was added to a count, by one process at a time.
with gone as (
    delete from penstock.tally
     where pg_try_advisory_xact_lock(4855284202)
    returning lane, state, minute, jobs
)
insert into penstock.tally (lane, state, minute, jobs)
select lane, state, minute, sum(jobs)
  from gone
 group by lane, state, minute
having sum(jobs) <> 0;

-- name: prune_flows
-- Flows that ended long ago, with all that belongs to them.
with old as materialized (
    select id
      from penstock.flow
     where ended_at < %(before)s
     order by ended_at
     limit %(most)s
       for update skip locked
),
nodes as (
    delete from penstock.node n using old where n.flow = old.id returning n.id
),
needs as (
    delete from penstock.need e using nodes where e.node = nodes.id
),
members as (
    delete from penstock.member m using nodes where m.node = nodes.id
),
found as (
    delete from penstock.find p using old where p.flow = old.id
)
delete from penstock.flow f using old where f.id = old.id;
