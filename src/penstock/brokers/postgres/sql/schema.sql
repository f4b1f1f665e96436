-- The schema `penstock`, in the app's database, so that a job can be committed with the caller's data.
-- Its functions are in functions/.
--
-- A job is in one table at a time: parcel (plain and ready), lease (running, out of a parcel), job (all
-- others that have not succeeded), history (succeeded; also a row for every attempt that ended).
-- Parcels and leases are inserted and deleted, hardly ever updated, and claims go on behind dead rows: an
-- open snapshot slows nothing down. Times are seconds since the epoch.
do $$
begin
    -- Not `create schema if not exists`: that needs the right to create one, even if it is there.
    if not exists (select 1 from pg_catalog.pg_namespace where nspname = 'penstock') then
        create schema penstock;
    end if;
end
$$;

-- Facts about the store: its id, the last migration, `pruned_before`, and when it was gauged.
create table penstock.meta (
    name text primary key,
    value text not null
);
-- Workers may write these two; everything else only the owner.
alter table penstock.meta enable row level security;
create policy meta_read on penstock.meta for select using (true);
create policy meta_set on penstock.meta for insert
    with check (name in ('pruned_before', 'gauged'));
create policy meta_change on penstock.meta for update
    using (name in ('pruned_before', 'gauged'))
    with check (name in ('pruned_before', 'gauged'));
-- Stores of development versions lack this row, and are refused.
insert into penstock.meta (name, value) values ('format', '1');
-- What the digests of messages that are not kept are made with, see Traits.
insert into penstock.meta (name, value)
values ('digest_key', encode(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()), 'hex'));

-- One (app, queue, task, version, priority, required tags); the key is a hash of the six.
create table penstock.lane (
    hash bigint primary key,
    app text not null default '',  -- the program whose workers run it
    queue text not null,
    task text not null,
    version integer not null,
    priority integer not null,
    runs_on text not null,
    search text not null  -- the argument fields that are indexed for every job of the lane
);

-- Plain ready jobs, packed into one row: `id` is the first of consecutive ids; all have the same attempt,
-- 0 unless a worker died that held them.
create table penstock.parcel (
    lane bigint not null,
    id uuid not null,
    jobs integer not null,
    lengths bytea not null,  -- of the bodies, four bytes each, little-endian
    bodies bytea not null,
    attempt integer not null default 0,  -- claims so far, all undone
    spared integer not null default 0,  -- as of a job
    primary key (lane, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
-- Guards against updates by hand. A trigger and not a check constraint: that would cost every insert
-- 5 us.
create function penstock.refuse_damage() returns trigger
language plpgsql
as $$
begin
    if new.jobs not between 1 and 4096 or length(new.lengths) <> 4 * new.jobs then
        raise exception 'parcel %: % jobs do not go with % bytes of lengths, four for each of 1 to 4096 jobs',
              new.id, new.jobs, length(new.lengths)
              using errcode = 'check_violation';
    end if;
    return new;
end
$$;
create trigger parcel_damage before update on penstock.parcel
    for each row execute function penstock.refuse_damage();
-- Uncompressed: to cut a parcel, only a part of it is read.
alter table penstock.parcel alter column bodies set storage external, alter column lengths set storage external;

-- What one claim took from the parcels of one lane. A byte per job in `marks`: 0 held, 1 settled,
-- 2 asked to cancel.
create table penstock.lease (
    id bigint primary key generated always as identity,
    worker text not null,
    lane bigint not null,
    claimed_at double precision not null,
    firsts bytea not null,  -- the first id of each parcel, 16 bytes each
    counts bytea not null,  -- how many jobs were taken of it, two bytes each, big-endian
    lengths bytea not null,
    bodies bytea not null,
    marks bytea not null,
    attempt integer not null default 1,  -- of each job
    spared integer not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
alter table penstock.lease alter column bodies set storage external, alter column lengths set storage external;
-- Serves recover and renew.
create index lease_worker on penstock.lease (worker);

-- Jobs that are not in parcels or leases, and have not succeeded.
create table penstock.job (
    id uuid primary key,
    lane bigint not null,
    state text not null check (state in ('waiting', 'ready', 'running', 'failed', 'cancelled')),
    run_at double precision not null,
    minute integer not null default 0,  -- of run_at, if that was in the future; else 0. See tally
    attempt integer not null default 0,
    failures integer not null default 0,
    lapses integer not null default 0,
    repeats integer not null default 0,
    spared integer not null default 0,  -- crashes in a row that were not charged to it
    enqueued_at double precision not null,
    claimed_at double precision,
    ended_at double precision,
    keep_until double precision,  -- once ended; null: for the retention
    worker text,
    cancelled boolean not null default false,  -- asked to cancel while it runs
    at_most_once boolean not null default false,
    key text,
    unique_key text,
    unique_until text,
    unique_seconds double precision,
    expires_at double precision,
    tags text,
    search text,
    reason text,
    error text,
    body bytea not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
-- Serves claim.
create index job_due on penstock.job (lane, run_at, id) where state = 'ready';
-- Serves claim in a queue that is handed out by key: the due rows of each key. By a hash of 64 bits, since
-- a key may be longer than an index entry; 0 for jobs without a key.
create index job_turn on penstock.job
    (lane, (coalesce(hashtextextended(nullif(key, ''), 0), 0)), run_at, id)
 where state = 'ready';
-- Serves claim and why in an ordered queue: the jobs of a key that come before another.
create index job_order on penstock.job
    (lane, (coalesce(hashtextextended(nullif(key, ''), 0), 0)), state, id)
 where key is not null and state in ('failed', 'ready', 'running');
-- Serves recover and renew.
create index job_held on penstock.job (worker) where state = 'running';
-- Serves expire.
create index job_expiry on penstock.job (expires_at) where state = 'ready' and expires_at is not null;
-- Serves the same, for jobs of flows.
create index job_waiting on penstock.job (expires_at) where state = 'waiting' and expires_at is not null;
-- Serves find of failed and cancelled jobs, and prune.
create index job_ended on penstock.job (id, ended_at) where state in ('failed', 'cancelled');
-- Serves find: jobs with derived ids, which contain no time, in the order they were enqueued.
create index job_derived on penstock.job (enqueued_at, id)
 where id >= 'ff000000-0000-0000-0000-000000000000';
create index job_derived_ended on penstock.job (enqueued_at, id)
 where id >= 'ff000000-0000-0000-0000-000000000000' and state in ('failed', 'cancelled');

-- Every id that was stored, until it is pruned, so that a job that is sent again is stored once, also
-- after it has ended. Partitioned by day: ids begin with their time.
create table penstock.sent (
    id uuid not null,
    jobs integer not null,
    lane bigint not null,
    at double precision,  -- of derived ids, which contain no time
    primary key (id)
) partition by range (id);
create table penstock.sent_other partition of penstock.sent default;
create table penstock.sent_derived partition of penstock.sent
    for values from ('ff000000-0000-0000-0000-000000000000') to ('ff800000-0000-0000-0000-000000000000');
-- Lasting ids: a partition of a backfill, a row of a frame. They are never pruned.
create table penstock.sent_lasting partition of penstock.sent
    for values from ('ff800000-0000-0000-0000-000000000000') to (maxvalue);

create table penstock.unique_key (
    key text primary key,
    job uuid not null,
    until text not null,
    expires_at double precision
);

-- Tags, and argument fields declared for search (as "arg.<field>").
create table penstock.tag (
    name text not null,
    value text not null,
    job uuid not null,
    primary key (name, value, job)
);
-- Serves prune and delete.
create index tag_job on penstock.tag (job);

create table penstock.note (
    id bigint primary key generated always as identity,
    job uuid not null,
    kind text not null,
    name text not null,
    at double precision not null,
    value bytea not null,
    unique (job, kind, name)
);

-- Counts of jobs by lane, state and, for scheduled jobs, the minute they are due (0: at once). Every
-- transaction adds rows with its differences, since updates of one row would wait for each other; upkeep
-- folds them. The count is the sum.
create table penstock.tally (
    lane bigint not null,
    state text not null,
    minute integer not null,
    jobs bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create table penstock.batch (
    id text primary key,
    rows bigint not null,
    at double precision not null
);

create table penstock.worker (
    id text primary key,
    boot text not null default '',
    alive_since double precision not null,
    alive_until double precision not null,
    lease double precision not null,
    gone double precision not null default 0,  -- when it was given up; kept, so that it learns of it when it renews
    claimed_at double precision,
    listens boolean not null default false,  -- it acknowledges changes of the rules
    declared text not null
) with (fillfactor = 50);

create table penstock.rule (
    kind text not null,
    queue text not null,  -- '' is any
    task text not null,
    author text not null,
    reason text not null,
    created_at double precision not null,
    until double precision,
    version integer not null default -1,  -- -1 is any
    tag text not null default '',  -- its name, '' is any
    tag_value text not null default '',
    key text not null default '',
    per_key boolean not null default false,  -- a limit that counts each key on its own
    running integer,  -- of a limit: at most so many at a time
    rate_jobs integer,  -- and so many starts in so many seconds
    rate_seconds double precision,
    policy text,  -- of an order: wait, skip, batch or fair
    primary key (kind, queue, task, version, tag, tag_value, key, per_key)
);
-- Only the owner and members of penstock_admin may block and unblock. search_path is fixed, so that a
-- caller cannot put tables of its own in front of the catalog.
create function penstock.may_block() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (
        select 1
          from pg_catalog.pg_roles r
         where (r.rolname = 'penstock_admin'
                or r.oid = (select c.relowner
                              from pg_catalog.pg_class c
                             where c.oid = 'penstock.rule'::pg_catalog.regclass))
           and pg_catalog.pg_has_role(current_user, r.oid, 'member')
    )
$$;
alter table penstock.rule enable row level security;
create policy rule_read on penstock.rule for select using (true);
create policy rule_set on penstock.rule for insert
    with check (kind <> 'block' or penstock.may_block());
create policy rule_change on penstock.rule for update
    using (kind <> 'block' or penstock.may_block())
    with check (kind <> 'block' or penstock.may_block());
create policy rule_clear on penstock.rule for delete
    using (kind <> 'block' or penstock.may_block());

-- Schedules by name. `declared` is JSON: the schedule, how far its slots are decided, and a revision,
-- which fences the next decision.
create table penstock.schedule (
    name text primary key,
    declared text not null
) with (fillfactor = 50);

-- Ended jobs that keep their secrets, encrypted, for a while (keep_secrets).
create table penstock.kept_secret (
    job uuid primary key,
    until double precision not null
);
-- Serves prune.
create index kept_secret_until on penstock.kept_secret (until);

-- Apps whose jobs are encrypted, and when that was last seen: who has no key stores nothing for them.
create table penstock.sealed_app (
    app text primary key,
    at double precision not null
);

-- Starts of jobs under a rate limit, while they count; `at` is in the time of leases.
create table penstock.start (
    id bigint generated by default as identity primary key,
    queue text not null,  -- these four name the limit, and the key that it counts
    task text not null,
    per_key boolean not null,
    key text not null,
    boot text not null default '',
    at double precision not null,
    made_at double precision not null,
    jobs integer not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Serves claim.
create index start_limit on penstock.start (queue, task, per_key, key);

-- One row per attempt that ended, and the rarer events. body and result are in the last row of a job
-- that is kept. A position is the number of the transaction and a number within it: readers that stop
-- below the oldest open transaction never miss a row that is committed late.
create sequence penstock.history_order as integer minvalue 0 maxvalue 1048575 cycle cache 1000;
create table penstock.history (
    position bigint not null
        default ((pg_current_xact_id()::text::bigint << 20) | nextval('penstock.history_order')),
    kind text not null,
    at double precision not null,
    job uuid,
    lane bigint,
    attempt integer,
    failures integer not null default 0,  -- as the attempt left them
    lapses integer not null default 0,
    repeats integer not null default 0,
    state text,
    reason text,
    key text,
    enqueued_at double precision,
    run_at double precision,
    started_at double precision,
    worker text,
    tags text,
    error text,
    body bytea,
    result bytea,
    data bytea,
    keep_until double precision,  -- of body and result; null: for the retention
    login text  -- of the database that wrote the row; null in rows of the hot path
) partition by range (at);
create table penstock.history_other partition of penstock.history default;
-- Whether a row is evidence: somebody's action, with its author.
create function penstock.is_evidence(p_kind text, p_data bytea) returns boolean
language sql immutable parallel safe
as $$
    select p_kind not in ('attempt', 'event', 'progress', 'gauge')
       and coalesce(position('"author":'::bytea in p_data) > 0, false)
$$;
-- A login writes evidence under its own name alone, and only the owner of the schema changes or deletes
-- it. Partitions have no policies: they are reached through the table, or not at all.
alter table penstock.history enable row level security;
create policy history_read on penstock.history for select using (true);
create policy history_write on penstock.history for insert
    with check (kind in ('attempt', 'event', 'progress', 'gauge') or login = session_user);
create policy history_change on penstock.history for update
    using (not penstock.is_evidence(kind, data));
create policy history_prune on penstock.history for delete
    using (not penstock.is_evidence(kind, data));
alter table penstock.history_other enable row level security;
create policy history_other_read on penstock.history_other for select using (true);  -- for the doctor
-- Serves history, and readers that go on from a position.
create index history_position on penstock.history (position);
-- Serves get, find and history of one job.
create index history_job on penstock.history (job) where job is not null;
-- Serves prune.
create index history_kept on penstock.history (keep_until) where keep_until is not null;
-- Serves history: the last rows of a kind, among a million attempts.
create index history_told on penstock.history (kind, position) where kind <> 'attempt';
-- Serves find: as job_derived.
create index history_derived on penstock.history (enqueued_at, job)
 where job >= 'ff000000-0000-0000-0000-000000000000';

-- Flows. This row is the lock for all nodes of the flow: it is locked before they are counted.
create table penstock.flow (
    id uuid primary key,
    name text not null,
    find text,  -- JSON: its properties
    state bytea not null,
    state_ttl double precision,  -- seconds after which the state is empty again; null: it stays
    state_until double precision,
    created_at double precision not null,
    ended_at double precision,
    jobs_left bigint not null  -- jobs that have not ended
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- Serves prune.
create index flow_ended on penstock.flow (ended_at) where ended_at is not null;
create index flow_state on penstock.flow (state_until) where state_until is not null;
-- Serves flows of a name.
create index flow_name on penstock.flow (name, id) where name <> '';

-- Properties of flows: a hash of the flow's name, the property and its value.
create table penstock.find (
    property uuid not null,
    flow uuid not null,
    primary key (property, flow)
);
-- Serves delete and prune.
create index find_flow on penstock.find (flow);

-- Nodes of flows: one job, or all jobs of a map. Counters, so that the end of a job is one update,
-- however many jobs the node has.
create table penstock.node (
    id uuid primary key,
    flow uuid not null,
    place integer not null,  -- in the flow: a node comes after those that it needs
    task text not null,
    jobs bigint not null,
    on_failure text not null check (on_failure in ('cancel', 'continue')),
    needs_left bigint not null,  -- needs that have not ended
    jobs_left bigint not null,  -- jobs that have not ended
    bad bigint not null default 0,  -- jobs that ended without success
    freed boolean not null  -- its needs have ended, and its jobs may run
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
-- Serves flow and prune.
create index node_flow on penstock.node (flow, place);

create table penstock.need (
    node uuid not null,
    place integer not null,
    need uuid not null,  -- the node that must end first
    met boolean not null default false,  -- it has ended, and was counted off needs_left
    primary key (node, place)
);
-- Serves settle: the nodes that need one.
create index need_need on penstock.need (need);

-- The jobs of a node: ranges of consecutive ids.
create table penstock.member (
    node uuid not null,
    place integer not null,
    first uuid not null,
    last uuid not null,
    primary key (node, place)
);

-- Staged jobs, unseen until their write is committed. Parcels are in penstock.parcel already, in a lane
-- that no claim looks at: to commit changes their lane, and bodies are not written again.
create table penstock.staged (
    write text not null,
    part text not null,
    id uuid not null,
    lane bigint not null,
    jobs integer not null,
    body bytea,  -- one job, as penstock.enqueue_jobs takes it; null: a parcel
    at double precision not null,
    primary key (write, part, id)
);

-- Staged jobs with rows of their own: one row for each call of stage, and its jobs under its number.
-- Unlogged: a crash of the server empties both, and the commit, which counts, refuses the write.
create unlogged table penstock.staged_call (
    write text not null,
    part text not null,
    call uuid not null,
    jobs integer not null,
    oldest uuid,  -- of the ids that contain a time
    tagged boolean not null,  -- some have tags, or arguments that are indexed
    has_unique boolean not null,  -- some have a unique key
    at double precision not null,
    primary key (write, part, call)
);
create unlogged table penstock.staged_job (
    call uuid not null,
    id uuid not null,
    lane bigint not null,
    enqueued_at double precision,  -- null for derived ids, which contain no time
    body bytea not null,
    key text,
    run_at double precision,
    at_most_once boolean not null,
    unique_key text,
    unique_until text,
    unique_seconds double precision,
    expires_at double precision,
    tags text,
    search text,
    names text  -- JSON: the pairs for penstock.tag
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 50000);
-- Serves commit_write and discard.
create index staged_job_call on penstock.staged_job (call);

-- The writes that were committed, so that each is committed once; of a stream the last epoch, which stands
-- for those before it.
create table penstock.published (
    write text primary key,
    jobs bigint not null,
    at double precision not null,
    token text not null,  -- of the call that committed it
    epoch bigint not null
);

-- How far each lake has the history. `declared` is JSON: the whole mark, with its gap.
create table penstock.mark (
    lake text primary key,
    position bigint not null,  -- all rows up to and including it are in the lake
    hold double precision not null,  -- how many seconds beyond the retention rows are kept for it
    declared text not null
);

-- Records that are kept as they are: subscriptions, the map of shards. `declared` is JSON.
create table penstock.record (
    kind text not null,
    id text not null,
    declared text not null,
    primary key (kind, id)
);
