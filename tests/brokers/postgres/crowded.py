"""A store with 50,000 rows in each table that grows, and what the server reads while it is used.

What the server counted is what counts, not what it planned: most statements run inside functions.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import psycopg

from penstock.broker.views import WorkerRow
from penstock.brokers.postgres import PostgresBroker
from penstock.enqueue.ids import Ids
from penstock.job import Job

ROWS = 50_000
LANES = 10
TASKS = {f"task-{number}": 1 for number in range(LANES)}
WORKER = WorkerRow(id="here", tasks=TASKS, lease=600)
# Those that grow with the jobs; the others have a row per lane, worker, rule or claim in flight.
LARGE = ("parcel", "job", "sent", "history", "unique_key", "tag")

_OFF = """
    do $$
    declare v_name text;
    begin
        for v_name in
            select oid::regclass from pg_class
             where relnamespace = 'penstock'::regnamespace and relkind = 'r'
        loop
            execute format('alter table %s set (autovacuum_enabled = off)', v_name);
        end loop;
    end
    $$;
"""

# A quarter of the rows is due, one in a hundred has a time to start by.
_FILL = """
    with one as (
        select p.*, row_number() over (order by p.lane) as place
          from (select distinct on (lane) * from penstock.parcel) as p
    )
    insert into penstock.parcel (lane, id, jobs, lengths, bodies)
    select lane, penstock.first_id(extract(epoch from now()) - 100 - (11 * n + place) / 1e3),
           jobs, lengths, bodies
      from one, generate_series(1, {each}) as n;

    with first as (select distinct on (lane) id from penstock.job),
    one as (
        select j, row_number() over (order by j.lane) as place
          from penstock.job j
         where j.id in (select id from first)
    )
    insert into penstock.job
    select made.*
      from one,
           generate_series(1, {each}) as n,
           lateral jsonb_populate_record(one.j, jsonb_build_object(
               'id', penstock.first_id(extract(epoch from now()) - 2000 - (11 * n + place) / 1e3),
               'run_at', (one.j).run_at + case when n % 4 = 0 then n - 100000 else n end,
               'expires_at', case when n % 100 = 0 then (one.j).run_at + 90000 end
           )) as made;

    insert into penstock.sent (id, jobs, lane)
    select id, jobs, lane from penstock.parcel
     union all
    select id, 1, lane from penstock.job
        on conflict do nothing;

    insert into penstock.job
    select made.*
      from (select j from penstock.job j limit 1) as one,
           generate_series(1, {each}) as n,
           lateral jsonb_populate_record(one.j, jsonb_build_object(
               'id', overlay(overlay(md5(n::text) placing 'ff' from 1) placing '8' from 13)::uuid,
               'enqueued_at', n,
               'state', case when n % 50 = 0 then 'failed' else 'waiting' end
           )) as made;

    insert into penstock.history
        (position, kind, at, job, lane, attempt, state, enqueued_at, run_at, body)
    select n, case when n % 10 = 0 then 'cancel' else 'attempt' end, extract(epoch from now()),
           case when n % 7 = 0 then overlay(md5(n::text) placing 'ff' from 1)::uuid
                else penstock.first_id(n) end,
           1, 1, 'succeeded', n, n, '{{}}'
      from generate_series(1, {rows}) as n;

    insert into penstock.unique_key (key, job, until)
    select 'key-' || n, penstock.first_id(n), 'ended' from generate_series(1, {rows}) as n;

    insert into penstock.tag (name, value, job)
    select 'tenant', n::text, penstock.first_id(n) from generate_series(1, {rows}) as n;
"""

_COUNTED = """
    select case when relname ~ '^(sent|history)_' then split_part(relname, '_', 1) else relname end,
           sum(coalesce(seq_tup_read, 0))::bigint,
           sum(coalesce(idx_tup_fetch, 0))::bigint
      from pg_stat_user_tables
     where schemaname = 'penstock'
     group by 1
"""

# The figures of a session are added when it has ended.
_OTHERS = """
    select count(*)
      from pg_stat_activity
     where datname = current_database()
       and pid <> pg_backend_pid()
       and backend_type = 'client backend'
"""


class Touched(NamedTuple):
    """Rows that the server read, by table."""

    scanned: dict[str, int]  # going through the table
    fetched: dict[str, int]  # by an index


class Crowded:
    """A store that can be filled, and watched."""

    def __init__(self, url: str) -> None:
        self.url = url
        broker, ids = PostgresBroker(url), Ids()
        for name in TASKS:  # a parcel and a later row in every lane, to be multiplied
            broker.enqueue([Job(task=name, queue=name, id=ids.next())])
            later = time.time() + 86_000
            broker.enqueue([Job(task=name, queue=name, id=ids.next(), run_at=later)])
        broker.close()
        self.run(_OFF)
        self._before: dict[str, tuple[int, int]] = {}

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def fill(self) -> None:
        self.run(_FILL.format(each=ROWS // LANES, rows=ROWS))

    def ids(self, table: str, count: int) -> list[str]:
        """Some that are in there."""
        with psycopg.connect(self.url) as connection:
            question = f"select id::text from penstock.{table} order by md5(id::text) limit {count}"
            rows = connection.execute(question.encode())
            return [name for (name,) in rows]

    def sessions(self) -> int:
        """How many are open."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            [(others,)] = connection.execute(_OTHERS)
            return others

    def watch(self, sessions: int = 0) -> None:
        """Count from here on, when no more sessions than these are open."""
        self._before = self._counted(sessions)

    def touched(self) -> Touched:
        """What was read since, by sessions that have ended."""
        after, none = self._counted(), (0, 0)
        return Touched(
            {name: after[name][0] - self._before.get(name, none)[0] for name in after},
            {name: after[name][1] - self._before.get(name, none)[1] for name in after},
        )

    def _counted(self, sessions: int = 0) -> dict[str, tuple[int, int]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            while True:
                [(others,)] = connection.execute(_OTHERS)
                if others <= sessions:
                    break
            return {name: (scan, fetch) for name, scan, fetch in connection.execute(_COUNTED)}
