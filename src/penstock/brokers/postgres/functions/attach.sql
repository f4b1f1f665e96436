-- Tables of the user's own as queues: a trigger enqueues a job for each row that is inserted, in the same
-- transaction. What the job is made of is the trigger's argument, a JSON object:
-- {"task", "app", "queue", "priority", "version", "args": {argument: column}, "key": column,
--  "unique": column, "at": column, "tags": {tag: column}, "secret": [arguments]}; without "args", every
-- column is an argument.

-- Serves the triggers. Security definer: who inserts needs no right on the schema. The right to execute it
-- is the right to attach a table.
create or replace function penstock.enqueue_row() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_says constant jsonb := tg_argv[0]::jsonb;
    v_row constant jsonb := to_jsonb(new);
    v_column text;
    v_at constant jsonb := v_row -> (v_says ->> 'at');
    v_args jsonb;
    v_tags jsonb;
begin
    select c.name into v_column
      from penstock.columns_in(v_says) as c (name)
     where not v_row ? c.name
     limit 1;
    if found then
        perform penstock.refuse(format(
            'table %s has no column %s any more, which its jobs are made of: attach it anew (penstock attach), or '
            'detach it', tg_relid::regclass, quote_literal(v_column)
        ));
    end if;
    select jsonb_object_agg(a.key, v_row -> a.value) into v_args from jsonb_each_text(v_says -> 'args') as a;
    select jsonb_object_agg(t.key, v_row ->> t.value) into v_tags
      from jsonb_each_text(v_says -> 'tags') as t
     where v_row ->> t.value is not null;
    perform penstock.enqueue(
        v_says ->> 'task',
        case when v_says ? 'args' then coalesce(v_args, '{}') else v_row end,
        queue => v_says ->> 'queue',
        priority => (v_says ->> 'priority')::integer,
        -- A number is nanoseconds since 1970.
        at => case jsonb_typeof(v_at)
              when 'number' then to_timestamp(0) + div(v_at::numeric, 1000)::bigint * interval '1 microsecond'
              when 'string' then (v_at #>> '{}')::timestamptz end,
        key => nullif(v_row ->> (v_says ->> 'key'), ''),
        unique_key => nullif(v_row ->> (v_says ->> 'unique'), ''),
        tags => v_tags,
        version => (v_says ->> 'version')::integer,
        secret => array(select jsonb_array_elements_text(v_says -> 'secret')),
        app => v_says ->> 'app'
    );
    return null;
end
$$;
revoke all on function penstock.enqueue_row() from public;

-- The columns that jobs are made of.
create or replace function penstock.columns_in(p_says jsonb) returns setof text
language sql immutable
as $$
    select a.value from jsonb_each_text(p_says -> 'args') as a
     union
    select t.value from jsonb_each_text(p_says -> 'tags') as t
     union
    select p_says ->> c.name from unnest(array['key', 'unique', 'at']) as c (name) where p_says ->> c.name is not null
$$;

-- The table of this name, as SQL writes it; refused if there is none.
create or replace function penstock.table_named(p_table text) returns regclass
language plpgsql stable
as $$
declare
    v_table regclass;
begin
    begin
        v_table := pg_catalog.to_regclass(p_table);
    exception when invalid_name or syntax_error or feature_not_supported then
        null;
    end;
    if v_table is null or not exists (
        select 1 from pg_catalog.pg_class c where c.oid = v_table and c.relkind in ('r', 'p')
    ) then
        perform penstock.refuse(pg_catalog.format(
            'table %s is not in this database: write schema.table, as SQL does (in double quotes where it has '
            'capital letters)', pg_catalog.quote_literal(p_table)
        ));
    end if;
    return v_table;
end
$$;

-- The statement that attaches a table; run by whom it is asked for, who owns the table.
create or replace function penstock.attach_sql(p_table text, p_says jsonb) returns text
language plpgsql stable
as $$
declare
    v_table constant regclass := penstock.table_named(p_table);
    v_column text;
begin
    perform penstock.check_task(p_says ->> 'task');
    perform penstock.check_name('queue', p_says ->> 'queue');
    select c.name into v_column
      from penstock.columns_in(p_says) as c (name)
     where not exists (
            select 1
              from pg_catalog.pg_attribute a
             where a.attrelid = v_table and a.attname = c.name and a.attnum > 0 and not a.attisdropped
           )
     limit 1;
    if found then
        perform penstock.refuse(pg_catalog.format(
            'table %s has no column %s: there are %s', v_table, pg_catalog.quote_literal(v_column),
            (select pg_catalog.string_agg(a.attname, ', ' order by a.attnum)
               from pg_catalog.pg_attribute a
              where a.attrelid = v_table and a.attnum > 0 and not a.attisdropped)
        ));
    end if;
    return pg_catalog.format(
        'create or replace trigger %I after insert on %s for each row execute function penstock.enqueue_row(%L)',
        penstock.trigger_for(p_says ->> 'task'), v_table, p_says
    );
end
$$;

-- A table has a trigger for each task.
create or replace function penstock.trigger_for(p_task text) returns text
language sql immutable
as $$
    select 'penstock ' || case when length(p_task) <= 50 then p_task
                               else left(p_task, 40) || ' ' || left(md5(p_task), 8) end
$$;

create or replace function penstock.detach_sql(p_table text, p_task text) returns text
language plpgsql stable
as $$
declare
    v_table constant regclass := penstock.table_named(p_table);
begin
    return (
        select pg_catalog.string_agg(pg_catalog.format('drop trigger %I on %s', t.tgname, v_table), '; ' order by t.tgname)
          from pg_catalog.pg_trigger t
         where t.tgrelid = v_table
           and t.tgparentid = 0
           and t.tgfoid = 'penstock.enqueue_row()'::regprocedure
           and (p_task is null or t.tgname = penstock.trigger_for(p_task))
    );
end
$$;

-- Attach a table, or detach it; the answer is what was done, null where there was nothing to do. With
-- p_dry_run it only answers.
create or replace function penstock.attach(p_table text, p_says jsonb, p_dry_run boolean) returns text
language plpgsql
as $$
declare
    v_sql constant text := penstock.attach_sql(p_table, p_says);
begin
    if not p_dry_run then
        execute v_sql;
    end if;
    return v_sql;
end
$$;

create or replace function penstock.detach(p_table text, p_task text, p_dry_run boolean) returns text
language plpgsql
as $$
declare
    v_sql constant text := penstock.detach_sql(p_table, p_task);
begin
    if v_sql is not null and not p_dry_run then
        execute v_sql;
    end if;
    return v_sql;
end
$$;
