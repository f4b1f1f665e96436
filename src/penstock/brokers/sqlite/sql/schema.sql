-- The whole schema of one SQLite file. Tables are prefixed, because the file may be the app's own
-- database: that is what lets a job be committed with the caller's data.
-- They are strict and checked: whoever edits the file by hand cannot write what we could not read.
--
-- A job lives in one place at a time: parcel (plain and ready), lease (a parcel's job that runs),
-- job (everything else that has not succeeded), history (succeeded, and every ended attempt).

-- The store's id, and the number of the last migration.
create table penstock_meta (
    name text primary key,
    value text not null
) without rowid, strict;
-- Stores of development versions do not have this row, and are refused by that.
insert into penstock_meta (name, value) values ('format', '1');
-- What the digests of messages that are not kept are made with, see Traits.
insert into penstock_meta (name, value) values ('digest_key', hex(randomblob(32)));

-- One (app, queue, task, version, priority, required tags); the key is a hash of the six.
create table penstock_lane (
    hash integer primary key,
    app text not null default '',  -- the program whose workers run it
    queue text not null,
    task text not null,
    version integer not null,
    priority integer not null,
    runs_on text not null,
    search text not null  -- the argument fields that every job of the lane has indexed
) strict;

-- Plain ready jobs, packed: ids follow on from the first, which is the key; one attempt for all, 0
-- unless a worker died that held them.
create table penstock_parcel (
    id blob primary key check (length(id) = 16),
    lane integer not null,
    jobs integer not null check (jobs between 1 and 4096),
    lengths blob not null check (length(lengths) = 4 * jobs),
    bodies blob not null,
    attempt integer not null default 0,  -- claims so far, all undone
    spared integer not null default 0  -- as of a job
) strict;
-- Serves claim.
create index penstock_parcel_lane on penstock_parcel (lane, id);

-- What one claim took from the parcels of one lane. A mark per job: 0 held, 1 settled, 2 asked to cancel.
create table penstock_lease (
    id integer primary key autoincrement,
    worker text not null,
    lane integer not null,
    claimed_at real not null,
    ids blob not null check (length(ids) = 16 * length(marks)),
    lengths blob not null check (length(lengths) = 4 * length(marks)),
    bodies blob not null,
    marks blob not null,
    attempt integer not null default 1,  -- of each job
    spared integer not null default 0
) strict;
-- Serves recover and renew.
create index penstock_lease_worker on penstock_lease (worker);

-- Every job that is neither plain and ready, nor running out of a parcel, nor succeeded.
create table penstock_job (
    id blob primary key check (length(id) = 16),
    lane integer not null,
    state text not null check (state in ('waiting', 'ready', 'running', 'failed', 'cancelled')),
    run_at real not null,
    minute integer not null default 0,  -- the bucket it is counted in: 0, or that of a later run_at
    attempt integer not null default 0,
    failures integer not null default 0,
    lapses integer not null default 0,
    repeats integer not null default 0,
    spared integer not null default 0,  -- crashes in a row that were not charged to it
    enqueued_at real not null,
    claimed_at real,
    ended_at real,
    keep_until real,  -- once ended; null: for the retention
    worker text,
    cancelled integer not null default 0,  -- asked to cancel while it runs
    at_most_once integer not null default 0,
    key text,
    unique_key text,
    unique_until text,
    unique_seconds real,
    expires_at real,
    tags text,
    search text,
    reason text,
    error text,
    body blob not null
) strict;
-- Serves claim.
create index penstock_job_due on penstock_job (lane, run_at, id) where state = 'ready';
-- Serves claim by keys in turn: the due rows of each key, those without one together.
create index penstock_job_turn on penstock_job (lane, coalesce(key, ''), run_at, id) where state = 'ready';
-- Serves claim and why in an ordered queue: what stands before a job of a key.
create index penstock_job_order on penstock_job (lane, key, state, id)
 where key is not null and state in ('failed', 'ready', 'running');
-- Serves recover and renew.
create index penstock_job_held on penstock_job (worker) where state = 'running';
-- Serves expire.
create index penstock_job_expiry on penstock_job (expires_at) where state = 'ready' and expires_at is not null;
-- Serves the same, for jobs of flows.
create index penstock_job_waiting on penstock_job (expires_at) where state = 'waiting' and expires_at is not null;
-- Serves find (failed and cancelled ones among a million scheduled) and prune.
create index penstock_job_ended on penstock_job (id, ended_at) where state in ('failed', 'cancelled');
-- Serves find: jobs with derived ids, which hold no time, in the order they were enqueued.
create index penstock_job_derived on penstock_job (enqueued_at, id) where id >= x'ff000000000000000000000000000000';
create index penstock_job_derived_ended on penstock_job (enqueued_at, id)
 where id >= x'ff000000000000000000000000000000' and state in ('failed', 'cancelled');

-- Every id ever stored, until it is pruned: an id sent again is recognised, also after its job ended.
create table penstock_sent (
    id blob primary key,
    jobs integer not null,
    at real  -- of derived ids, which hold no time
) without rowid, strict;

create table penstock_unique (
    key text primary key,
    job blob not null,
    until text not null,
    expires_at real
) without rowid, strict;

-- Tags, and argument fields declared for search (as "arg.<field>").
create table penstock_tag (
    name text not null,
    value text not null,
    job blob not null,
    primary key (name, value, job)
) without rowid, strict;
-- Serves prune and delete.
create index penstock_tag_job on penstock_tag (job);

create table penstock_note (
    id integer primary key,
    job blob not null,
    kind text not null,
    name text not null,
    at real not null,
    value blob not null,
    unique (job, kind, name)
) strict;

-- How many jobs of a lane are in a state; of ready ones, by the minute they are due (0: at once).
create table penstock_tally (
    lane integer not null,
    state text not null,
    minute integer not null,
    jobs integer not null,
    primary key (lane, state, minute)
) without rowid, strict;

create table penstock_batch (
    id text primary key,
    rows integer not null,
    at real not null
) without rowid, strict;

-- Monotonic times, valid within one boot: a jump of the wall clock moves no lease.
create table penstock_worker (
    id text primary key,
    boot text not null,
    alive_since real not null,
    alive_until real not null,
    lease real not null,
    gone real not null default 0,  -- when it was given up; kept, to be told so if it comes back
    claimed_at real,
    declared text not null
) without rowid, strict;

create table penstock_rule (
    kind text not null,
    queue text not null,  -- '' is any
    task text not null,
    version integer not null,  -- -1 is any
    tag text not null,  -- its name, '' is any
    tag_value text not null,
    key text not null,
    per_key integer not null,  -- a limit that counts each key on its own
    author text not null,
    reason text not null,
    created_at real not null,
    until real,
    running integer,  -- of a limit: at most so many at a time
    rate_jobs integer,  -- and so many starts in so many seconds
    rate_seconds real,
    policy text,  -- of an order: wait, skip, batch or fair
    primary key (kind, queue, task, version, tag, tag_value, key, per_key)
) without rowid, strict;

-- Schedules by name. `declared` is JSON: what was asked for, how far its slots are decided, and a
-- revision, which is the fence of whoever decides next.
create table penstock_schedule (
    name text primary key,
    declared text not null
) without rowid, strict;

-- Ended jobs that keep their secrets, encrypted, for a while (keep_secrets).
create table penstock_kept_secret (
    job blob primary key check (length(job) = 16),
    until real not null
) without rowid, strict;
-- Serves prune.
create index penstock_kept_secret_until on penstock_kept_secret (until);

-- Apps whose jobs are encrypted, and when that was last seen: who has no key stores nothing for them.
create table penstock_sealed_app (
    app text primary key,
    at real not null
) without rowid, strict;

-- What was claimed under a limit's rate, for as long as it counts. Monotonic times, as of leases.
create table penstock_start (
    id integer primary key,
    queue text not null,  -- these four are the limit's, and the key that is counted
    task text not null,
    per_key integer not null,
    key text not null,
    boot text not null,
    at real not null,
    made_at real not null,  -- by the wall clock: all that is left to go by after another boot
    jobs integer not null
) strict;
-- Serves claim.
create index penstock_start_limit on penstock_start (queue, task, per_key, key);

-- One row per ended attempt, and the rarer events. Positions follow the order of commits, because
-- SQLite has one writer at a time. body and result stand in the last row of a job that is kept.
create table penstock_history (
    position integer primary key autoincrement,
    kind text not null,
    at real not null,
    job blob,
    lane integer,
    attempt integer,
    failures integer not null default 0,  -- as the attempt left them
    lapses integer not null default 0,
    repeats integer not null default 0,
    state text,
    reason text,
    key text,
    enqueued_at real,
    run_at real,
    started_at real,
    worker text,
    tags text,
    error text,
    body blob,
    result blob,
    data blob,
    keep_until real  -- of body and result; null: for the retention
) strict;
-- Serves get, find and history of one job.
create index penstock_history_job on penstock_history (job) where job is not null;
-- Serves prune.
create index penstock_history_kept on penstock_history (keep_until) where keep_until is not null;
-- Serves history: the last rows of a kind, among a million attempts.
create index penstock_history_told on penstock_history (kind, position) where kind <> 'attempt';
-- Serves find: as penstock_job_derived.
create index penstock_history_derived on penstock_history (enqueued_at, job)
 where job >= x'ff000000000000000000000000000000';

-- Jobs joined by needs, as a whole. Whoever counts in a flow has locked this row before.
create table penstock_flow (
    id blob primary key check (length(id) = 16),
    name text not null,
    find text,  -- JSON: the properties that it is found by
    state blob not null,
    state_ttl real,  -- seconds after which the state is empty again; null: it stays
    state_until real,
    created_at real not null,
    ended_at real,
    jobs_left integer not null  -- jobs that have not ended
) without rowid, strict;
-- Serves prune.
create index penstock_flow_ended on penstock_flow (ended_at) where ended_at is not null;
create index penstock_flow_state on penstock_flow (state_until) where state_until is not null;
-- Serves flows of a name.
create index penstock_flow_name on penstock_flow (name, id) where name <> '';

-- The properties that flows are found by: a hash of the flow's name, the property and its value.
create table penstock_find (
    property blob not null check (length(property) = 16),
    flow blob not null check (length(flow) = 16),
    primary key (property, flow)
) without rowid, strict;
-- Serves delete and prune.
create index penstock_find_flow on penstock_find (flow);

-- What others can need: one job, or all jobs of a map. Counts, so that an end is one write, whatever
-- the number of jobs.
create table penstock_node (
    id blob primary key check (length(id) = 16),
    flow blob not null,
    place integer not null,  -- in the flow: needs before those who need them
    task text not null,
    jobs integer not null,
    on_failure text not null check (on_failure in ('cancel', 'continue')),
    needs_left integer not null,  -- needs that have not ended
    jobs_left integer not null,  -- jobs that have not ended
    bad integer not null default 0,  -- jobs that ended without success
    freed integer not null  -- its needs ended, and its jobs may run: that stands
) without rowid, strict;
-- Serves flow and prune.
create index penstock_node_flow on penstock_node (flow, place);

create table penstock_need (
    node blob not null,
    place integer not null,
    need blob not null,  -- the node that must end first
    met integer not null default 0,  -- it ended, and was counted off
    primary key (node, place)
) without rowid, strict;
-- Serves settle: who needs a node.
create index penstock_need_need on penstock_need (need);

-- The jobs of a node: ids from the first to the last, which follow on.
create table penstock_member (
    node blob not null,
    place integer not null,
    first blob not null check (length(first) = 16),
    last blob not null check (length(last) = 16),
    primary key (node, place)
) without rowid, strict;

-- Writes in parts: what is kept unseen until its write is published.
create table penstock_staged (
    write text not null,
    part text not null,
    id blob not null check (length(id) = 16),
    lane integer not null,
    jobs integer not null,
    lengths blob,  -- null: bodies is one job of its own, as JSON
    bodies blob not null,
    at real not null,
    primary key (write, part, id)
) strict;

-- Which writes were published, so that each is once; of a stream the last epoch, which stands for
-- those before it.
create table penstock_published (
    write text primary key,
    jobs integer not null,
    at real not null,
    token text not null,  -- of the call that published it
    epoch integer not null
) without rowid, strict;

-- How far lakes have the history. `declared` is JSON: the whole mark, with its gap.
create table penstock_mark (
    lake text primary key,
    position integer not null,  -- all rows up to and with it are in the lake
    hold real not null,  -- seconds that others are kept for it, beyond their retention
    declared text not null
) without rowid, strict;

-- Records that are kept as they are: subscriptions, the map of shards. `declared` is JSON.
create table penstock_record (
    kind text not null,
    id text not null,
    declared text not null,
    primary key (kind, id)
) without rowid, strict;

-- For people who query in SQL: penstock_jobs, penstock_attempts, penstock_detached. Columns are only ever added,
-- at the end. Plain reads; `stored_id` is what other tables call the job, null of one that is packed.

-- Serves the views: places in a parcel, and digits of a number.
create view penstock_place as
with recursive places (place) as (select 0 union all select place + 1 from places where place < 4095)
select place from places;
create view penstock_digit as
select column1 as digit from (values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11));

-- Serves the view: the jobs of parcels and leases, each with its place and the size of its body.
create view penstock_packed as
select 'parcel' as stored_in, p.id as parcel, s.place, p.lane, 'ready' as state, p.attempt, null as claimed_at,
       null as worker,
       lower(hex(substr(p.id, 1, 14)))
       || printf('%04x', s.place + (
           select sum((instr('0123456789ABCDEF', substr(hex(substr(p.id, 15, 2)), digit + 1, 1)) - 1)
                      << (4 * (3 - digit)))
             from penstock_digit
            where digit < 4
       )) as hex,
       hex(substr(p.lengths, 4 * s.place + 1, 4)) as size,
       p.bodies
  from penstock_parcel p
  join penstock_place s on s.place < p.jobs
union all
select 'lease', l.id, s.place, l.lane, iif(substr(l.marks, s.place + 1, 1) = x'01', 'settled', 'running'),
       l.attempt, l.claimed_at, l.worker, lower(hex(substr(l.ids, 16 * s.place + 1, 16))),
       hex(substr(l.lengths, 4 * s.place + 1, 4)), l.bodies
  from penstock_lease l
  join penstock_place s on s.place < length(l.marks);

create view penstock_sized as
select *,
       sum(bytes) over (partition by stored_in, parcel order by place) - bytes as start
  from (
    select *,
           (select sum((instr('0123456789ABCDEF', substr(size, digit + 1, 1)) - 1)
                       << (8 * (digit / 2) + 4 * (1 - digit % 2)))
              from penstock_digit
             where digit < 8) as bytes
      from penstock_packed
  );

-- Serves the view: all jobs alike, wherever they are. Times are seconds since the epoch.
create view penstock_listed as
select lower(hex(id)) as hex, lane, state, reason, attempt, failures, lapses, key, unique_key, tags, enqueued_at,
       run_at, claimed_at, ended_at, expires_at, worker, error, body, null as result, id as stored_id
  from penstock_job
union all
select lower(hex(job)), lane, state, reason, attempt, failures, lapses, key, null, tags, enqueued_at,
       run_at, started_at, at, null, worker, error, body, result, job
  from penstock_history
 where job is not null and kind = 'attempt' and state = 'succeeded' and body is not null
union all
select hex, lane, state, null, attempt, 0, 0, null, null, null,
       (select sum((instr('0123456789abcdef', substr(hex, digit + 1, 1)) - 1) << (4 * (11 - digit)))
          from penstock_digit) / 1000.0,
       null, claimed_at, null, null, worker, null, substr(bodies, start + 1, bytes), null, null
  from penstock_sized
 where state <> 'settled';

create view penstock_jobs as
select substr(j.hex, 1, 8) || '-' || substr(j.hex, 9, 4) || '-' || substr(j.hex, 13, 4) || '-'
       || substr(j.hex, 17, 4) || '-' || substr(j.hex, 21) as id,
       l.task, l.queue, l.app, l.version, l.priority, j.state, j.reason, j.key, j.unique_key, j.tags,
       iif(json_valid(j.tags), json_extract(j.tags, '$."penstock.parent"'), null) as parent,
       iif(json_valid(cast(j.body as text)), json_extract(cast(j.body as text), '$.flow.id'), null) as flow,
       j.attempt, j.failures, j.lapses,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.enqueued_at, 'unixepoch') as enqueued_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.run_at, 'unixepoch') as run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.claimed_at, 'unixepoch') as started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.ended_at, 'unixepoch') as ended_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', j.expires_at, 'unixepoch') as expires_at,
       j.worker, j.error,
       iif(json_valid(cast(j.body as text)), json_patch(
           json_extract(cast(j.body as text), '$.args'),
           (select json_group_object(value, '***') from json_each(cast(j.body as text), '$.secret'))
       ), null) as arguments,
       iif(json_valid(cast(j.body as text)), json_extract(cast(j.body as text), '$.headers'), null) as headers,
       cast(j.result as text) as result,
       j.stored_id
  from penstock_listed j
  left join penstock_lane l on l.hash = j.lane;

-- Every attempt that ended, one row each; a job that was tried again has several.
create view penstock_attempts as
select lower(substr(hex(h.job), 1, 8) || '-' || substr(hex(h.job), 9, 4) || '-' || substr(hex(h.job), 13, 4) || '-'
             || substr(hex(h.job), 17, 4) || '-' || substr(hex(h.job), 21)) as id,
       h.attempt, l.task, l.queue, l.app, l.version, l.priority, h.state, h.reason, h.key, h.tags,
       iif(json_valid(h.tags), json_extract(h.tags, '$."penstock.parent"'), null) as parent,
       h.failures, h.lapses,
       strftime('%Y-%m-%dT%H:%M:%fZ', h.enqueued_at, 'unixepoch') as enqueued_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', h.run_at, 'unixepoch') as run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', h.started_at, 'unixepoch') as started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', h.at, 'unixepoch') as ended_at,
       h.worker, h.error,
       iif(json_valid(cast(h.body as text)), json_patch(
           json_extract(cast(h.body as text), '$.args'),
           (select json_group_object(value, '***') from json_each(cast(h.body as text), '$.secret'))
       ), null) as arguments,
       cast(h.result as text) as result,
       h.job as stored_id
  from penstock_history h
  left join penstock_lane l on l.hash = h.lane
 where h.kind = 'attempt';

-- Jobs of detached tasks: those that wait, run or have ended.
create view penstock_detached as
select * from penstock_jobs where iif(json_valid(tags), json_extract(tags, '$.detached'), null) = 'yes';
