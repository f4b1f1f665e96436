-- Delete what was kept long enough; fold counts; create and drop partitions.

-- name: prune
-- Delete old rows of the history that every lake has, without those that are kept longer.
delete from penstock.history h
 using (
    select tableoid, ctid
      from penstock.history
     where at < %(before)s
       and position <= %(lowest)s
       and (keep_until is null or keep_until <= %(now)s)
       and (%(evidence)s or not penstock.is_evidence(kind, data))
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;

-- name: prune_past
-- Delete old rows that some lake lacks, but whose hold is over for all of those. The condition on time
-- comes first: rows that are held for days are not read again by every prune.
delete from penstock.history h
 using (
    select o.tableoid, o.ctid
      from penstock.history o
     where o.at < %(past)s
       and o.position > %(lowest)s
       and (o.keep_until is null or o.keep_until <= %(now)s)
       and (%(evidence)s or not penstock.is_evidence(o.kind, o.data))
       and not exists (select 1
                         from penstock.mark m
                        where m.position < o.position
                          and o.at >= %(before)s - m.hold)
     limit %(most)s
 ) as old
 where h.tableoid = old.tableoid
   and h.ctid = old.ctid;

-- name: past_hold
-- How many rows after a position prune_past is about to delete, and the last of them: the gap of a lake.
-- The condition on time restricts it to the partitions of old days.
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

-- name: may_prune_evidence
-- Whether this login deletes evidence with the rest; see functions/prune_evidence.sql.
select penstock.may_prune_evidence() as may;

-- name: prune_evidence
-- Delete evidence that is old even for evidence; the same for all logins.
select penstock.prune_evidence(%(before)s, %(lowest)s) as rows;

-- name: share_marks
-- Nobody changes a mark until the commit; others may prune meanwhile.
lock table penstock.mark in share mode;

-- name: old_days
-- The partitions whose day is older than `before` and that hold nothing to be kept longer, by its own
-- time or for a lake.
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
-- Drop or truncate a partition; see functions/drop_day.sql.
select penstock.drop_day(%s::regclass, %s) as rows;

-- name: make_day
-- Serves recover: create the partitions of a day; see functions/days.sql.
select penstock.make_day(%s);

-- name: prune_bodies
-- Delete arguments and results whose own retention is over; that the jobs ran stays recorded.
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
-- Ended jobs that were kept long enough, locked; with the body of flow members, which names their node.
select id, lane, state, minute,
       case when position('"flow":'::bytea in body) > 0 then body end as body
  from penstock.job
 where state in ('failed', 'cancelled')
   and case when keep_until is null then ended_at < %(before)s else keep_until <= %(now)s end
 order by id
 limit %(most)s
   for update skip locked;

-- name: kept_over
-- Jobs that keep secrets whose time is over, locked. The job comes first, as when it ends: who locks its
-- row in penstock.kept_secret before that would be in a deadlock with who ends it.
select j.id, j.state, j.body
  from penstock.kept_secret k
  join penstock.job j on j.id = k.job
 where k.until <= %(now)s
 order by j.id
 limit %(most)s
   for update of j skip locked;

-- name: put_body
-- The body of an ended job without its secrets.
update penstock.job set body = %(body)s where id = %(id)s;

-- name: forget_kept
-- Of a job that keeps no secrets any more.
delete from penstock.kept_secret where job = %(id)s;

-- name: forget_kept_gone
-- Of jobs of which there is no row any more.
delete from penstock.kept_secret k
 where k.until <= %(now)s
   and not exists (select 1 from penstock.job j where j.id = k.job);

-- name: prune_sealed
-- Apps whose jobs are not encrypted any more.
delete from penstock.sealed_app where at < %(before)s;

-- name: prune_sent
-- Delete ids that are refused because of their age.
delete from penstock.sent
 where id in (
    select id
      from penstock.sent
     where id < penstock.first_id(%(before)s)
     limit %(most)s
 );

-- name: prune_derived
-- Delete derived ids, which contain no time: by the time they were stored, if nothing else is left of
-- the job.
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
-- Refuse ids from before this time from now on.
insert into penstock.meta as m (name, value) values ('pruned_before', %(before)s::double precision::text)
    on conflict (name) do update
   set value = greatest(m.value::double precision, excluded.value::double precision)::text;

-- name: prune_unique
-- Delete unique keys that have expired.
delete from penstock.unique_key where expires_at <= %(now)s;

-- name: prune_batches
-- Delete old batches.
delete from penstock.batch where at < %(before)s;

-- name: prune_staged
-- Staged writes that nobody added to for a day.
select write
  from (
           select write, at from penstock.staged
           union all
           select write, at from penstock.staged_call
       ) as staged_rows
 group by write
having max(at) < %(now)s - %(staged)s;

-- name: prune_published
-- Forget that old writes without a name were committed.
delete from penstock.published where at < %(before)s and write like 'unnamed/%%';

-- name: prune_starts
-- Delete starts that no rate limit counts any more: the longest window is a day.
delete from penstock.start where made_at < %(now)s - 90000;

-- name: prune_workers
-- Delete workers that were given up long ago and hold no job: a late claim may have been stored after that.
delete from penstock.worker w
 where w.gone > 0
   and w.gone < %(before)s
   and not exists (select 1 from penstock.lease l where l.worker = w.id)
   and not exists (select 1 from penstock.job j where j.worker = w.id and j.state = 'running');

-- name: prune_notes
-- Delete notes of jobs of which nothing else is left.
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
-- Delete tags of jobs of which nothing else is left.
delete from penstock.tag t
 where (t.name, t.value, t.job) in (
    select o.name, o.value, o.job
      from penstock.tag o
     where not exists (select 1 from penstock.job j where j.id = o.job)
       and not exists (select 1 from penstock.history h where h.job = o.job)
     limit %(most)s
 );

-- name: fold
-- Serves recover: replace all rows of a count by their sum, in one process at a time.
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

-- name: prune_states
-- States of flows whose time is over.
update penstock.flow f
   set state = '{}', state_until = null
  from (
        select id
          from penstock.flow
         where state_until <= %(now)s
         limit %(most)s
           for update skip locked
       ) old
 where f.id = old.id;

-- name: prune_flows
-- Delete flows that ended long ago, with everything that belongs to them.
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
