-- Enqueue from SQL: for triggers, psql, and programs in other languages. Refuses what Python refuses, as
-- invalid_parameter_value (22023), in a sentence that names the value.

create or replace function penstock.refuse(p_sentence text) returns void
language plpgsql
as $$
begin
    raise exception using errcode = 'invalid_parameter_value', message = p_sentence;
end
$$;

create or replace function penstock.check_name(p_what text, p_name text) returns void
language plpgsql
as $$
begin
    if p_name is null or p_name collate "C" !~ '^[A-Za-z0-9_.:/-]{1,200}$' then
        perform penstock.refuse(format(
            '%s %s: 1 to 200 characters out of letters, digits and _ . : / - are allowed',
            p_what, coalesce(quote_literal(left(p_name, 60)), 'null')
        ));
    end if;
end
$$;

-- A task named like a file is refused: it must never be taken for code to import.
create or replace function penstock.check_task(p_name text) returns void
language plpgsql
as $$
begin
    perform penstock.check_name('task', p_name);
    if coalesce(nullif(substring(p_name from '^(.*):'), ''), p_name) collate "C" ~* '(^|:)[.]{0,2}/|[.]py(:|$)' then
        perform penstock.refuse(format(
            'task %s is a path: what is before the colon must not begin with / or end in .py; write '
            'module:function, for example tasks:add',
            quote_literal(left(p_name, 60))
        ));
    end if;
end
$$;

create or replace function penstock.check_text(p_what text, p_text text) returns void
language plpgsql
as $$
begin
    if p_text is not null and length(p_text) not between 1 and 500 then
        perform penstock.refuse(format(
            '%s %s: a text of 1 to 500 characters', p_what, quote_literal(left(p_text, 60))
        ));
    end if;
end
$$;

-- Seconds of a span of time.
create or replace function penstock.seconds_of(p_what text, p_span interval) returns double precision
language plpgsql
as $$
begin
    if p_span is not null and extract(epoch from p_span) not between 0 and 1000 * 366 * 86400.0 then
        perform penstock.refuse(format('%s %s: 0 or more, and at most a thousand years', p_what, p_span));
    end if;
    return extract(epoch from p_span)::double precision;
end
$$;

-- An object whose values are all texts.
create or replace function penstock.check_texts(p_what text, p_texts jsonb) returns void
language plpgsql
as $$
declare
    v_name text;
begin
    if p_texts is not null and jsonb_typeof(p_texts) <> 'object' then
        perform penstock.refuse(format('%s %s: an object of texts, as {"tenant": "a"}', p_what, left(p_texts::text, 60)));
    end if;
    if p_texts is not null then
        select e.key into v_name
          from jsonb_each(p_texts) as e
         where jsonb_typeof(e.value) <> 'string'
         limit 1;
        if found then
            perform penstock.refuse(format('%s: %s is %s, and must be a text', p_what, quote_literal(v_name), p_texts -> v_name));
        end if;
    end if;
end
$$;

-- The first part of a value that some JSON readers would not read back unchanged; null if there is none.
create or replace function penstock.fault_in(p_value jsonb, p_path text, p_depth integer) returns text
language plpgsql immutable
as $$
declare
    v_kind constant text := jsonb_typeof(p_value);
    v_part record;
    v_fault text;
begin
    if v_kind = 'number' then
        if p_value::text !~ '[.]' and p_value::numeric not between -9223372036854775808 and 9223372036854775807 then
            return p_path || ': an integer beyond 64 bits is not read back everywhere; send it as text';
        end if;
        if abs(p_value::numeric) > 1.7976931348623157e308 then
            return p_path || ': a number that large is not read back everywhere; send it as text';
        end if;
        return null;
    end if;
    if v_kind not in ('object', 'array') then
        return null;
    end if;
    if p_depth >= 64 then
        return left(p_path, 200) || ': more than 64 levels deep; send a flatter value';
    end if;
    for v_part in
        select '.' || e.key as step, e.value
          from jsonb_each(case when v_kind = 'object' then p_value else '{}' end) as e
         union all
        select '[' || (a.place - 1) || ']', a.value
          from jsonb_array_elements(case when v_kind = 'array' then p_value else '[]' end)
               with ordinality as a (value, place)
    loop
        v_fault := penstock.fault_in(v_part.value, p_path || v_part.step, p_depth + 1);
        exit when v_fault is not null;
    end loop;
    return v_fault;
end
$$;

-- The bucket of this text, as bucket_for in enqueue/ids.py: ten bits of its hash.
create or replace function penstock.bucket_for(p_text text) returns integer
language sql immutable strict
as $$
    select (get_byte(h.hash, 0) << 2) | (get_byte(h.hash, 1) >> 6)
      from (select sha256(convert_to(p_text, 'UTF8'))) as h (hash)
$$;

-- A new id, as in enqueue/ids.py: milliseconds, 12 bits of a fraction of one, the bucket (of p_decides, or
-- random), 40 random bits, 12 bits that are 0.
create or replace function penstock.new_id(p_now double precision, p_decides text) returns uuid
language sql volatile
as $$
    select (
        lpad(to_hex(floor(p_now * 1000)::bigint), 12, '0')
        || '7' || lpad(to_hex(floor((p_now * 1000 - floor(p_now * 1000)) * 4096)::integer), 3, '0')
        || coalesce(to_hex(2048 + penstock.bucket_for(p_decides)), substr(r.random, 17, 3))
        || substr(r.random, 20, 10) || '000'
    )::uuid
      from (select replace(gen_random_uuid()::text, '-', '')) as r (random)
$$;

-- The hash of a lane, which is stored if it is new.
create or replace function penstock.lane_of(
    p_app text, p_queue text, p_task text, p_version integer, p_priority integer, p_runs_on text[]
) returns bigint
language plpgsql
as $$
declare
    v_hash bigint;
begin
    select l.hash into v_hash
      from penstock.lane l
     where l.app = p_app and l.task = p_task and l.queue = p_queue and l.version = p_version
       and l.priority = p_priority and l.runs_on = array_to_string(p_runs_on, ',');
    if not found then
        -- As Lane.hash in job.py: the first eight bytes, big-endian, signed.
        v_hash := ('x' || encode(substring(sha256(convert_to(format(
            '["%s","%s","%s",%s,%s,[%s]]', p_app, p_queue, p_task, p_version, p_priority,
            (select string_agg('"' || r.tag || '"', ',' order by r.place)
               from unnest(p_runs_on) with ordinality as r (tag, place))
        ), 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint;
        insert into penstock.lane (hash, app, queue, task, version, priority, runs_on, search)
        values (v_hash, p_app, p_queue, p_task, p_version, p_priority, array_to_string(p_runs_on, ','), '')
            on conflict do nothing;
    end if;
    return v_hash;
end
$$;

-- The values of the argument fields that are indexed for all jobs of a lane. A field that this job lacks,
-- or whose value is no text, number or boolean, is taken off the lane: not all its jobs have it indexed.
create or replace function penstock.searched_in(p_lane bigint, p_args jsonb) returns jsonb
language plpgsql
as $$
declare
    v_fields text;
    v_search jsonb;
begin
    select l.search into v_fields from penstock.lane l where l.hash = p_lane;
    if coalesce(v_fields, '') = '' then
        return null;
    end if;
    select jsonb_object_agg(f.field, p_args #>> string_to_array(f.field, '.'))
      into v_search
      from unnest(string_to_array(v_fields, ',')) as f (field)
     where jsonb_typeof(p_args #> string_to_array(f.field, '.')) in ('string', 'number', 'boolean');
    update penstock.lane l
       set search = array_to_string(array(
            select k.field
              from unnest(string_to_array(l.search, ',')) as k (field)
             where v_search ? k.field
       ), ',')
     where l.hash = p_lane
       and not coalesce(v_search ?& string_to_array(v_fields, ','), false);
    return v_search;
end
$$;

-- Store a job in the caller's transaction; answers its id, or that of the job that holds its unique key.
-- Security definer: a caller needs nothing but the right to execute this.
create or replace function penstock.enqueue(
    task text,
    args jsonb default '{}',
    queue text default 'default',
    priority integer default 0,
    delay interval default null,
    at timestamptz default null,
    key text default null,
    unique_key text default null,
    tags jsonb default null,
    id uuid default null,
    unique_until text default 'ended',
    unique_for interval default null,
    expires interval default null,
    headers jsonb default null,
    version integer default 1,
    runs_on text[] default '{}',
    timeout interval default null,
    at_most_once boolean default false,
    secret text[] default '{}',
    app text default ''
) returns uuid
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_now constant double precision := extract(epoch from clock_timestamp())::double precision;
    v_delay constant double precision := penstock.seconds_of('delay', enqueue.delay);
    v_expires constant double precision := penstock.seconds_of('expires', enqueue.expires);
    v_timeout constant double precision := penstock.seconds_of('timeout', enqueue.timeout);
    v_unique_for constant double precision := penstock.seconds_of('unique_for', enqueue.unique_for);
    v_tag record;
    v_fault text;
    v_id uuid := enqueue.id;
    v_made double precision;
    v_run uuid;
    v_body jsonb := jsonb_build_object('args', enqueue.args);
    v_bytes bytea;
    v_lane bigint;
    v_search jsonb;
    v_answer jsonb;
begin
    perform penstock.check_task(enqueue.task);
    if enqueue.app is distinct from '' then
        perform penstock.check_name('app', enqueue.app);
    end if;
    if exists (select 1 from penstock.sealed_app s where s.app = enqueue.app) then
        perform penstock.refuse(format(
            'app %s encrypts its jobs, and SQL has no key: enqueue task %s in a program with the key ring, or for '
            'an app of another name', quote_literal(enqueue.app), quote_literal(left(enqueue.task, 60))
        ));
    end if;
    perform penstock.check_name('queue', enqueue.queue);
    perform penstock.check_name('tag in runs_on', r.tag) from unnest(enqueue.runs_on) as r (tag);
    if enqueue.priority is null or enqueue.priority not between -100 and 100 then
        perform penstock.refuse(format('priority %s: a whole number from -100 to 100, higher goes first', coalesce(enqueue.priority::text, 'null')));
    end if;
    if enqueue.version is null or enqueue.version < 1 then
        perform penstock.refuse(format('version %s: a whole number from 1 up', coalesce(enqueue.version::text, 'null')));
    end if;
    if enqueue.delay is not null and enqueue.at is not null then
        perform penstock.refuse('delay and at both say when the job runs: give one of them');
    end if;
    if not isfinite(enqueue.at) then
        perform penstock.refuse(format('at %s is not a time', enqueue.at));
    end if;
    if v_timeout = 0 then
        perform penstock.refuse('timeout 00:00:00: more than 0; leave it out for no limit');
    end if;
    perform penstock.check_text('key', enqueue.key);
    perform penstock.check_text('unique_key', enqueue.unique_key);
    if enqueue.unique_key is null and (enqueue.unique_for is not null or enqueue.unique_until is distinct from 'ended') then
        perform penstock.refuse('unique_for and unique_until say how long unique_key holds; give that, too');
    end if;
    if enqueue.unique_until is null or enqueue.unique_until not in ('started', 'ended', 'time') then
        perform penstock.refuse(format('unique_until %s: started, ended or time', coalesce(quote_literal(enqueue.unique_until), 'null')));
    end if;
    if enqueue.unique_until = 'time' and enqueue.unique_for is null then
        perform penstock.refuse('unique_until ''time'' needs unique_for, how long it holds');
    end if;
    perform penstock.check_texts('headers', enqueue.headers);
    perform penstock.check_texts('tags', enqueue.tags);
    for v_tag in select e.key as name, e.value from jsonb_each_text(coalesce(enqueue.tags, '{}')) as e loop
        perform penstock.check_name('tag', v_tag.name);
        perform penstock.check_text('tag ' || v_tag.name, v_tag.value);
    end loop;
    if enqueue.args is null or jsonb_typeof(enqueue.args) <> 'object' then
        perform penstock.refuse(format('args %s: an object with an argument per name, as {"order": 7}', coalesce(left(enqueue.args::text, 60), 'null')));
    end if;
    if array_position(enqueue.secret, null) is not null then
        perform penstock.refuse('secret: null is not the name of an argument');
    end if;

    if coalesce(enqueue.headers, '{}') <> '{}' then
        v_body := v_body || jsonb_build_object('headers', enqueue.headers);
    end if;
    if v_timeout is not null then
        v_body := v_body || jsonb_build_object('timeout', v_timeout);
    end if;
    if coalesce(enqueue.secret, '{}') <> '{}' then
        v_body := v_body || jsonb_build_object('secret', to_jsonb(enqueue.secret));
    end if;
    v_bytes := convert_to(v_body::text, 'UTF8');
    if length(v_bytes) > 262144 then
        perform penstock.refuse(format('the arguments take %s bytes, the limit is 262144: store the data elsewhere and hand over where it is', length(v_bytes)));
    end if;
    -- Only after the size was checked: this reads the whole value.
    select penstock.fault_in(e.value, 'argument ' || e.key, 0) into v_fault
      from jsonb_each(enqueue.args) as e
     where penstock.fault_in(e.value, 'argument ' || e.key, 0) is not null
     limit 1;
    if v_fault is not null then
        perform penstock.refuse(v_fault);
    end if;

    if v_id is null then
        v_id := penstock.new_id(v_now, coalesce(enqueue.unique_key, enqueue.key));
    elsif get_byte(uuid_send(v_id), 0) <> 255 then
        v_made := penstock.made_at(v_id);
        if v_made > v_now + 60 then
            perform penstock.refuse(format('job %s was made %s s ahead of the store''s clock', v_id, round((v_made - v_now)::numeric)));
        end if;
        if v_made < v_now - 14 * 86400 or v_id < (
            select penstock.first_id(m.value::double precision) from penstock.meta m where m.name = 'pruned_before'
        ) then
            perform penstock.refuse(format('job %s was made %s days ago, longer than ids are remembered: it may have run already. Make a new one', v_id, round(((v_now - v_made) / 86400)::numeric, 1)));
        end if;
    end if;
    v_run := (left(v_id::text, 33) || '000')::uuid;
    v_lane := penstock.lane_of(
        enqueue.app, enqueue.queue, enqueue.task, enqueue.version, enqueue.priority,
        array(select r.tag from unnest(enqueue.runs_on) as r (tag) order by r.tag collate "C")
    );
    if coalesce(enqueue.secret, '{}') <> '{}' then
        select f.field into v_fault
          from penstock.lane l, unnest(string_to_array(l.search, ',')) as f (field)
         where l.hash = v_lane and split_part(f.field, '.', 1) = any(enqueue.secret)
         limit 1;
        if v_fault is not null then
            perform penstock.refuse(format('search %s is of a secret argument: what is searched for stands in an index, as it is', v_fault));
        end if;
    end if;
    v_search := penstock.searched_in(v_lane, enqueue.args);
    if v_delay is null and enqueue.at is null and enqueue.key is null and enqueue.unique_key is null
       and v_expires is null and coalesce(enqueue.tags, '{}') = '{}' and v_search is null
       and enqueue.at_most_once is not true and get_byte(uuid_send(v_id), 0) <> 255
    then
        if v_id <> v_run then
            perform penstock.lock_runs(array[v_run]);
        end if;
        perform penstock.enqueue_unsent(
            v_id, v_run, v_id, v_lane, 1,
            decode(lpad(to_hex(length(v_bytes) % 256), 2, '0') || lpad(to_hex(length(v_bytes) / 256 % 256), 2, '0')
                   || lpad(to_hex(length(v_bytes) / 65536), 2, '0') || '00', 'hex'),
            v_bytes
        );
    else
        v_answer := penstock.enqueue_jobs(jsonb_build_array(jsonb_build_object(
            'id', v_id,
            'run', v_run,
            'lane', v_lane,
            'run_at', coalesce(v_now + v_delay, extract(epoch from enqueue.at)::double precision),
            'enqueued_at', case when get_byte(uuid_send(v_id), 0) <> 255 then penstock.made_at(v_id) end,
            'at_most_once', coalesce(enqueue.at_most_once, false),
            'key', enqueue.key,
            'unique_key', enqueue.unique_key,
            'unique_until', case when enqueue.unique_key is not null then enqueue.unique_until end,
            'unique_seconds', v_unique_for,
            'expires_at', v_now + v_expires,
            'tags', nullif(coalesce(enqueue.tags, '{}'), '{}')::text,
            'search', v_search::text,
            'body', v_body::text,
            'names', (
                select jsonb_agg(jsonb_build_array(n.name, n.value))
                  from (
                    select e.key as name, e.value from jsonb_each_text(coalesce(enqueue.tags, '{}')) as e
                     union all
                    select 'arg.' || e.key, e.value from jsonb_each_text(coalesce(v_search, '{}')) as e
                  ) as n
            )
        )), v_now);
        v_id := coalesce((v_answer -> 'standing' ->> v_id::text)::uuid, v_id);
    end if;
    perform pg_notify('penstock', v_lane::text);
    return v_id;
end
$$;

revoke all on function penstock.enqueue(
    text, jsonb, text, integer, interval, timestamptz, text, text, jsonb, uuid, text, interval,
    interval, jsonb, integer, text[], interval, boolean, text[], text
) from public;
