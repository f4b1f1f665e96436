-- Forget what was kept long enough, and make room for days to come.

-- name: prune
-- Forget these rows of the history, but for what is to be kept longer.
delete from penstock_history
 where position > :after
   and position < :end
   and (keep_until is null or keep_until <= :now);

-- name: prune_page
-- Where the next rows of the history end, and the first of them that stays: because it is young
-- enough, or because a lake has it not yet.
select max(position) as last,
       min(case when at >= :before
                  or exists (select 1
                               from penstock_mark m
                              where m.position < h.position
                                and h.at >= :before - m.hold)
                then position end) as stays
  from (
    select position, at
      from penstock_history
     where position > :after
     order by position
     limit :most
 ) h;

-- name: past_hold
-- The rows behind a position that are about to go, because no lake holds them any more. As they go,
-- in order, up to the first that stays.
select count(*) as rows,
       max(position) as until
  from penstock_history
 where position > :known
   and position < coalesce(
        (select h.position
           from penstock_history h
          where h.position > :known
            and exists (select 1
                          from penstock_mark m
                         where m.position < h.position
                           and h.at >= :before - m.hold)
          order by h.position
          limit 1), 9223372036854775807)
   and (keep_until is null or keep_until <= :now);

-- name: prune_bodies
-- Arguments and results whose own time is over; that they ran stays recorded.
update penstock_history
   set body = null, result = null, keep_until = null
 where position in (
    select position
      from penstock_history
     where keep_until <= :now
     limit :most
 );

-- name: prune_jobs
-- Jobs that ended and were kept long enough.
select *
  from penstock_job
 where state in ('failed', 'cancelled')
   and case when keep_until is null then ended_at < :before else keep_until <= :now end
 limit :most;

-- name: kept_over
-- Jobs that keep secrets whose time is over.
select j.id, j.state, j.body
  from penstock_kept_secret k
  join penstock_job j on j.id = k.job
 where k.until <= :now
 order by j.id
 limit :most;

-- name: put_body
-- The body of an ended job without its secrets.
update penstock_job set body = :body where id = :id;

-- name: forget_kept
-- Of a job that keeps no secrets any more.
delete from penstock_kept_secret where job = :id;

-- name: forget_kept_gone
-- Of jobs of which there is no row any more.
delete from penstock_kept_secret
 where until <= :now
   and not exists (select 1 from penstock_job j where j.id = penstock_kept_secret.job);

-- name: prune_sealed
-- Apps whose jobs are not encrypted any more.
delete from penstock_sealed_app where at < :before;

-- name: prune_sent
-- Ids that are refused from now on because of their age.
delete from penstock_sent
 where id in (
    select id
      from penstock_sent
     where id < :below
     limit :most
 );

-- name: prune_derived
-- Derived ids, which hold no time, by that of their row and of what became of it. Lasting ones, from
-- ff80 on, stay.
delete from penstock_sent
 where id in (
    select id
      from penstock_sent
     where id >= x'ff'
       and id < x'ff80'
       and at < :before
       and not exists (select 1 from penstock_job where penstock_job.id = penstock_sent.id)
       and not exists (
            select 1 from penstock_history h where h.job = penstock_sent.id and h.at >= :before
       )
     limit :most
 );

-- name: prune_unique
-- Keys whose time is over.
delete from penstock_unique where expires_at <= :now;

-- name: prune_batches
-- Batches nobody goes on with.
delete from penstock_batch where at < :before;

-- name: prune_staged
-- Writes that nobody added to for a day, and nobody published.
delete from penstock_staged
 where write in (
           select write
             from penstock_staged
            group by write
           having max(at) < :now - :staged
       );

-- name: prune_published
-- Writes without a name, which nobody publishes again.
delete from penstock_published where at < :before and write like 'unnamed/%';

-- name: prune_starts
-- Starts that no window can hold any more; the longest is a day.
delete from penstock_start where made_at < :now - 90000;

-- name: prune_workers
-- Workers that were given up long ago.
delete from penstock_worker where gone > 0 and gone < :before;

-- name: prune_notes
-- Notes of jobs of which nothing else is left.
delete from penstock_note
 where not exists (select 1 from penstock_job where id = penstock_note.job)
   and not exists (select 1 from penstock_history where job = penstock_note.job)
   and not exists (select 1 from penstock_lease where instr(ids, penstock_note.job) > 0);

-- name: prune_tags
-- Tags of jobs of which nothing else is left.
delete from penstock_tag
 where not exists (select 1 from penstock_job where id = penstock_tag.job)
   and not exists (select 1 from penstock_history where job = penstock_tag.job);

-- name: prune_tallies
-- Counts that came to nothing.
delete from penstock_tally where jobs = 0;

-- name: prune_flows
-- Flows that ended long ago; what belongs to them went before.
delete from penstock_flow
 where id in (
    select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
 );

-- name: prune_states
-- States of flows whose time is over.
update penstock_flow
   set state = x'7b7d', state_until = null
 where id in (select id from penstock_flow where state_until <= :now limit :most);

-- name: prune_found
-- Of the flows that ended long ago.
delete from penstock_find
 where flow in (
    select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
 );

-- name: prune_members
-- Of the flows that ended long ago.
delete from penstock_member
 where node in (
    select n.id
      from penstock_node n
     where n.flow in (
        select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
     )
 );

-- name: prune_needs
-- Of the flows that ended long ago.
delete from penstock_need
 where node in (
    select n.id
      from penstock_node n
     where n.flow in (
        select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
     )
 );

-- name: prune_nodes
-- Of the flows that ended long ago.
delete from penstock_node
 where flow in (
    select id from penstock_flow where ended_at < :before order by ended_at, id limit :most
 );
