-- Hand due jobs of these lanes, best first, to a worker: parcels move into one lease per lane, rows
-- become running. Answers one row per lane that gave jobs. In it, `news` is the number of seconds within
-- which its jobs must start, if a rate limit covers the lane, and the word `turn`, if its queue is handed
-- out by key; and `attempt=N` and `spared=N`, if the jobs of its lease were claimed before. In a row without a lane, `news` are words:
--   unknown    the worker is not registered, or was given up; nothing was claimed
--   expired    jobs whose time to start is over are to be cancelled
--   lapsed     some worker's lease has run out
--   limited    limits cover some of these lanes
--   ordered    jobs of some lanes hold back others of their key
--   free=SECONDS   so long until a limit lets more jobs start, or a rule ends
-- The settings keep a cached plan, made when a table was empty, from scanning a full one. jit is off: a
-- plan that uses a disabled node all the same has so high a cost that it would be compiled, for seconds.
create or replace function penstock.claim(
    p_worker text,
    p_declared text,             -- its row as JSON; null: it is registered and not to be renewed
    p_lease double precision,
    p_listens boolean,           -- it acknowledges changes of the rules
    p_lanes bigint[],
    p_tasks integer[],           -- of each lane, the index of its task in p_sizes
    p_sizes integer[],           -- the most jobs of each task
    p_queues integer[],          -- of each lane, the index of its queue in p_shares; null: no queue shares
    p_shares integer[],          -- the most jobs of each queue
    p_guesses integer[],         -- of each lane, how many parcels to read
    p_floors uuid[],             -- of each lane, where to go on among its parcels
    p_row_floors double precision[],  -- and among its rows; null: it has none
    p_limit integer,
    p_now double precision,
    p_lease_time double precision  -- now, in the time of leases
) returns table (
    lane bigint, lease bigint, firsts bytea, counts bytea, lengths bytea, bodies bytea,
    job_rows uuid[], news text
)
language plpgsql
set enable_seqscan = off
set jit = off
set lock_timeout = '4s'
set enable_bitmapscan = off
set enable_sort = off
as $$
declare
    v_taken_parcels record;
    v_left integer := p_limit;
    v_want integer;
    v_rows uuid[];
    v_from_parcels integer;
    v_taken integer;
    v_news text;
    v_rules boolean;
    v_at_most_once boolean := false;
    v_limits boolean := false;
    v_row_rules boolean := false;  -- some rule goes by key or tag
    v_room record;
    v_only_rows uuid[];
    v_orders boolean := false;  -- some queue is handed out by key
    v_policy text;
    v_first_rows uuid[];  -- rows that were picked by key, in this order
    v_free_in double precision;
    v_again text;
    v_suspects integer := 0;  -- jobs of this lane that were spared a lapse before
begin
    if p_declared is not null then
        insert into penstock.worker as w (id, alive_since, alive_until, lease, claimed_at, listens, declared)
        values (p_worker, p_lease_time, p_lease_time + p_lease, p_lease, p_now, p_listens, p_declared)
            on conflict (id) do update
           set alive_since = case when w.gone > 0 or w.alive_until <= p_lease_time
                                  then p_lease_time else w.alive_since end,
               alive_until = excluded.alive_until,
               lease = excluded.lease,
               gone = 0,
               claimed_at = excluded.claimed_at,
               listens = excluded.listens,
               declared = excluded.declared;
    else
        perform 1 from penstock.worker w where w.id = p_worker and w.gone = 0 and w.alive_until > p_lease_time;
        if not found then
            return query select null::bigint, null::bigint, null::bytea, null::bytea, null::bytea,
                                null::bytea, null::uuid[], 'unknown'::text;
            return;
        end if;
    end if;
    -- Shared, until the commit: whoever puts a rule waits for claims that began without it.
    perform pg_advisory_xact_lock_shared(4855284201);
    v_rules := exists (select 1 from penstock.rule r where r.until is null or r.until > p_now);
    v_limits := v_rules and penstock.lock_limits(p_lanes, p_now, p_lease_time);
    v_row_rules := v_rules and exists (
        select 1 from penstock.rule r where r.per_key or r.key <> '' or r.tag <> ''
    );
    v_orders := v_rules and exists (select 1 from penstock.rule r where r.kind = 'order');
    for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
        exit when v_left <= 0;
        v_want := least(v_left, p_sizes[p_tasks[i]], p_shares[p_queues[i]]);
        continue when v_want <= 0;
        continue when v_rules and penstock.kept_back(p_lanes[i], p_now);
        if v_limits then
            select * into v_room from penstock.room(p_lanes[i], v_want, null, p_now, p_lease_time);
            v_want := v_room.jobs;
            if v_want <= 0 then
                v_free_in := least(v_free_in, v_room.free_in);
                continue;
            end if;
        end if;
        v_only_rows := null;  -- any due row
        v_first_rows := '{}';
        v_policy := null;
        if v_orders then
            v_policy := penstock.policy_of(p_lanes[i]);
        end if;
        if v_policy is not null and p_row_floors[i] is not null then
            if v_policy <> 'fair' then
                v_news := ' limited ordered';  -- the end of these jobs lets others of their key start
            end if;
            select t.ids, t.loose, t.plain, t.free_in into v_room
              from penstock.turns(p_lanes[i], v_policy, v_want, p_floors[i], p_guesses[i], p_now, p_lease_time) t;
            v_first_rows := v_room.ids;
            v_only_rows := v_room.loose;
            v_want := v_room.plain;
            v_free_in := least(v_free_in, v_room.free_in);
        elsif v_row_rules and p_row_floors[i] is not null and penstock.picks(p_lanes[i], p_now) then
            select p.ids, p.free_in into v_room
              from penstock.picked(p_lanes[i], v_want, p_row_floors[i], p_now, p_lease_time) p;
            v_only_rows := v_room.ids;
            v_free_in := least(v_free_in, v_room.free_in);
        end if;
        lane := p_lanes[i];
        job_rows := null;
        v_suspects := 0;
        v_again := null;
        v_from_parcels := v_want;  -- jobs to take from parcels
        if p_row_floors[i] is not null then
            -- Merge rows and parcels by when their jobs were due: rows beyond v_want are left.
            with any_due as materialized (
                select j.id, j.run_at, j.spared
                  from penstock.job j
                 where v_only_rows is null
                   and j.lane = p_lanes[i]
                   and j.state = 'ready'
                   and j.run_at >= p_row_floors[i]
                   and j.run_at <= p_now
                   and (j.expires_at is null or j.expires_at > p_now)
                 order by j.run_at, j.id
                 limit v_want
                   for update skip locked
            ),
            picked_due as materialized (
                select j.id, j.run_at, j.spared
                  from penstock.job j
                 where j.id = any(v_only_rows)
                   and j.state = 'ready'
                   for update skip locked
            ),
            due as (
                select * from any_due union all select * from picked_due
            ),
            packed as materialized (
                select p.id, p.jobs, penstock.made_at(p.id) as at
                  from penstock.parcel p
                 where p.lane = p_lanes[i] and p.id >= p_floors[i]
                 order by p.id
                 limit p_guesses[i]
            ),
            ranked as (
                select due.id, due.run_at,
                       count(*) filter (where due.spared > 0) over (order by due.run_at, due.id) as suspects,
                       row_number() over (order by due.run_at, due.id)
                       + coalesce((select sum(packed.jobs) from packed where (packed.at, packed.id) <= (due.run_at, due.id)), 0) as place
                  from due
            )
            select array_agg(ranked.id order by ranked.run_at, ranked.id), coalesce(max(ranked.suspects), 0)
              into v_rows, v_suspects
              from ranked
             where place <= v_want
               and suspects <= 128;
            v_from_parcels := v_want - coalesce(array_length(v_rows, 1), 0);
            v_rows := nullif(v_first_rows || coalesce(v_rows, '{}'), '{}');
            if v_rows is not null then
                update penstock.job j
                   set state = 'running', attempt = j.attempt + 1, worker = p_worker,
                       claimed_at = p_now, cancelled = false
                 where j.id = any(v_rows);
                delete from penstock.unique_key u
                 where u.key in (
                    select k.key
                      from penstock.unique_key k
                      join penstock.job j on j.unique_key = k.key and j.id = k.job
                     where j.id = any(v_rows) and k.until = 'started'
                       for update of k skip locked
                 );
                insert into penstock.tally (lane, state, minute, jobs)
                select p_lanes[i], 'ready', j.minute, -count(*)
                  from penstock.job j where j.id = any(v_rows) group by j.minute;
                v_at_most_once := v_at_most_once or exists (
                    select 1 from penstock.job j where j.id = any(v_rows) and j.at_most_once
                );
                job_rows := v_rows;
            end if;
        end if;
        v_taken := coalesce(array_length(job_rows, 1), 0);
        lease := null;
        if v_from_parcels > 0 then
            with picked as materialized (
                select p.id, p.jobs, p.lengths, p.bodies, p.attempt, p.spared
                  from penstock.parcel p
                 where p.lane = p_lanes[i] and p.id >= p_floors[i]
                 order by p.id
                 limit p_guesses[i]
                   for update skip locked
            ),
            -- All jobs of a lease have one attempt; and at most 128 of them were spared before.
            oldest as materialized (
                select f.attempt, f.spared,
                       case when f.spared > 0 then least(v_from_parcels, 128) else v_from_parcels end as most
                  from picked f
                 order by f.id
                 limit 1
            ),
            summed as (
                select picked.*, l.most,
                       sum(picked.jobs) over w - picked.jobs as before,
                       bool_and(picked.attempt = l.attempt and picked.spared = l.spared) over w as alike
                  from picked, oldest l
                window w as (order by picked.id)
            ),
            chosen as materialized (
                select s.id, s.jobs, s.lengths, s.bodies, s.attempt, s.spared,
                       least(s.jobs, s.most - s.before)::integer as take,
                       case when s.jobs <= s.most - s.before then length(s.bodies)
                            else penstock.total_of(s.lengths, (s.most - s.before)::integer)
                       end as size
                  from summed s
                 where s.before < s.most
                   and s.alike
            ),
            gone as (
                -- By array: for a join, a plan made for an empty table reads the whole lane.
                delete from penstock.parcel p
                 where p.lane = p_lanes[i] and p.id = any(array(select c.id from chosen c))
            ),
            -- The rest of a cut parcel is a new row, not an update: a concurrent claim whose snapshot
            -- has the old row would lock the updated one and take its jobs, but could not delete it.
            rest as (
                insert into penstock.parcel (lane, id, jobs, lengths, bodies, attempt, spared)
                select p_lanes[i], penstock.id_after(c.id, c.take), c.jobs - c.take,
                       substr(c.lengths, 4 * c.take + 1), substr(c.bodies, c.size + 1), c.attempt, c.spared
                  from chosen c
                 where c.take < c.jobs
            )
            select string_agg(uuid_send(c.id), ''::bytea order by c.id) as firsts,
                   string_agg(int2send(c.take::smallint), ''::bytea order by c.id) as counts,
                   string_agg(case when c.take < c.jobs then substr(c.lengths, 1, 4 * c.take) else c.lengths end, ''::bytea order by c.id) as lengths,
                   string_agg(case when c.take < c.jobs then substr(c.bodies, 1, c.size) else c.bodies end, ''::bytea order by c.id) as bodies,
                   sum(c.take)::integer as jobs, min(c.attempt) + 1 as attempt, min(c.spared) as spared
              into v_taken_parcels
              from chosen c;
            if v_taken_parcels.jobs is not null then
                insert into penstock.lease as l (worker, lane, claimed_at, firsts, counts, lengths, bodies, marks, attempt, spared)
                values (p_worker, p_lanes[i], p_now, v_taken_parcels.firsts, v_taken_parcels.counts, v_taken_parcels.lengths,
                        v_taken_parcels.bodies, decode(repeat('00', v_taken_parcels.jobs), 'hex'),
                        v_taken_parcels.attempt, v_taken_parcels.spared)
                returning l.id into lease;
                insert into penstock.tally (lane, state, minute, jobs)
                values (p_lanes[i], 'ready', 0, -v_taken_parcels.jobs);
                firsts := v_taken_parcels.firsts;
                counts := v_taken_parcels.counts;
                lengths := v_taken_parcels.lengths;
                bodies := v_taken_parcels.bodies;
                v_taken := v_taken + v_taken_parcels.jobs;
                v_suspects := v_suspects + v_taken_parcels.spared;
                if v_taken_parcels.attempt > 1 then
                    v_again := 'attempt=' || v_taken_parcels.attempt || ' spared=' || v_taken_parcels.spared;
                end if;
            end if;
        end if;
        if v_taken > 0 then
            insert into penstock.tally (lane, state, minute, jobs)
            values (p_lanes[i], 'running', 0, v_taken);
            v_left := v_left - v_taken;
            p_sizes[p_tasks[i]] := p_sizes[p_tasks[i]] - v_taken;
            if p_queues is not null then
                p_shares[p_queues[i]] := p_shares[p_queues[i]] - v_taken;
            end if;
            news := v_again;
            if v_limits then
                -- How many seconds after its claim a job may start, if a rate covers it.
                news := concat_ws(' ', penstock.put_starts(p_lanes[i], v_taken, job_rows, p_now, p_lease_time), news);
            end if;
            if v_policy is not null then
                news := concat_ws(' ', news, 'turn');
            end if;
            return next;
            exit when v_suspects > 0;  -- no others in this claim
        end if;
    end loop;
    v_news := penstock.news(p_now, p_lease_time) || coalesce(v_news, '');
    if v_limits then
        v_news := v_news || ' limited';
    end if;
    if v_free_in < 'infinity' then
        v_news := v_news || ' free=' || v_free_in;
    end if;
    if v_news <> '' then
        lane := null;
        news := v_news;
        return next;
    end if;
    -- The commit of a claim need not wait for the disk: lost in a crash, it is made again. That of an
    -- at_most_once job must: it would run twice.
    if v_at_most_once then
        perform set_config('synchronous_commit', case when s.reset_val = 'off' then 'on' else s.reset_val end, true)
           from pg_settings s
          where s.name = 'synchronous_commit';
    elsif current_setting('penstock.settled', true) is distinct from 'yes' then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end
$$;
