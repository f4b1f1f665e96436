"""Indexes of a history that has rows: built while others write, and gone on with after a kill."""

from __future__ import annotations

import threading
from dataclasses import replace

import psycopg
import pytest
from psycopg import errors

from penstock.brokers import migrate_store
from penstock.brokers.postgres import PostgresBroker, migrating
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.index_building import build_parts
from penstock.brokers.postgres.migration_steps import MigrationPlan, MigrationStep, this_plan
from penstock.errors import StoreUnreachable
from tests.brokers.postgres.catalogue import catalogue
from tests.brokers.postgres.test_migrations import psql

NEXT = this_plan().newest + 1
# As a migration has to say it: where there are rows already, the parts are built after it.
INDEX = """
do $$
begin
    execute format(
        'create index history_told on %s penstock.history (kind, position)'
        ' where kind <> ''attempt''',
        case when exists (select 1 from penstock.history) then 'only' else '' end
    );
    execute format(
        'create index history_derived on %s penstock.history (enqueued_at, job)'
        ' where job >= ''ff000000-0000-0000-0000-000000000000''',
        case when exists (select 1 from penstock.history) then 'only' else '' end
    );
end
$$;
"""
DAY = 86_400
WRITE = "insert into penstock.history (kind, at) values ('event', extract(epoch from now()))"
INDEXES = """
    select i.indexrelid::regclass::text, i.indisvalid
      from pg_index i
     where i.indrelid in (select relid from pg_partition_tree('penstock.history'))
       and pg_get_indexdef(i.indexrelid) ~ '(kind, "position"|enqueued_at, job)'
"""


@pytest.fixture
def watching(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def old(postgres_url, watching):
    """A store from before these indexes, with rows of two days and some of no day."""
    with connect(postgres_url, prepare=True) as connection:
        migrating.migrate(connection, "here")
    for index in ("history_told", "history_derived"):
        watching.execute(f"drop index penstock.{index}")
    for days in (0, 1, -400):
        watching.execute(
            "insert into penstock.history (kind, at, job, enqueued_at)"
            " select 'event', extract(epoch from now()) + %s, gen_random_uuid(), n"
            " from generate_series(1, 100) as n",
            (days * DAY,),
        )
    return postgres_url


def with_the_indexes() -> MigrationPlan:
    """What a later Penstock would bring."""
    plan = this_plan()
    return replace(plan, steps=(*plan.steps, MigrationStep(NEXT, "indexes.sql", False, INDEX)))


def open_it(url: str) -> None:
    """As whoever opens the store does: the migration, then the parts."""
    with connect(url, prepare=True) as connection:
        migrating.open_schema(connection, "here", create=False, plan=with_the_indexes())


def is_whole(watching) -> bool:
    rows = watching.execute(INDEXES).fetchall()
    days = watching.execute("select count(*) from pg_partition_tree('penstock.history')").fetchone()
    [(left,)] = watching.execute("select count(*) from penstock.meta where name = 'parts'")
    return len(rows) == 2 * days[0] and all(valid for _, valid in rows) and left == 0


def test_whoever_opens_the_store_builds_them(old, watching, migrated_postgres):
    open_it(old)

    assert is_whole(watching)
    assert catalogue(old) == catalogue(migrated_postgres.url)


def test_what_sql_prints_builds_them_too(old, watching, migrated_postgres):
    with connect(old, prepare=False) as connection:
        meta = migrating.read_meta(connection)
    result = psql(old, migrating.migration_sql(meta, plan=with_the_indexes()))

    assert result.returncode == 0, result.stderr
    assert is_whole(watching)
    assert catalogue(old) == catalogue(migrated_postgres.url)


def test_a_store_without_rows_has_nothing_to_build(postgres_url, watching):
    PostgresBroker(postgres_url).close()

    assert is_whole(watching)


def test_others_write_meanwhile(old, watching):
    """One who builds waits for a reader here, and keeps no writer waiting."""
    done = threading.Event()

    with connect(old, prepare=True) as connection:
        migrating.migrate(connection, "here", plan=with_the_indexes())

    def migrate():
        migrate_store(old)
        done.set()

    with psycopg.connect(old) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1 from penstock.history limit 1")
        thread = threading.Thread(target=migrate)
        thread.start()
        waits = "select count(*) from pg_stat_progress_create_index where phase ~ '^waiting'"
        while watching.execute(waits).fetchone() == (0,):
            assert thread.is_alive()
        watching.execute("set lock_timeout = '1s'")
        for _ in range(10):
            watching.execute(WRITE)
        assert not done.is_set()
    thread.join(60)

    assert done.is_set()
    assert is_whole(watching)


def test_who_is_ended_in_the_middle_leaves_it_to_the_next_one(old, watching):
    with psycopg.connect(old) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1 from penstock.history limit 1")
        open_it(old)  # waits for the reader, but not for long
        assert not is_whole(watching)
        unfinished = [name for name, valid in watching.execute(INDEXES) if not valid]
        assert any(name.endswith("_idx") for name in unfinished), unfinished
        watching.execute(WRITE)

    PostgresBroker(old).close()

    assert is_whole(watching)


def test_one_at_a_time_builds_and_the_others_do_not_wait(old, watching):
    with connect(old, prepare=True) as first, connect(old, prepare=True) as second:
        migrating.migrate(first, "here", plan=with_the_indexes())
        first.execute("select pg_advisory_lock(4855284205)")

        assert not build_parts(second)
        with pytest.raises(StoreUnreachable, match="run `penstock migrate up` again"):
            migrate_store(old)
        first.execute("select pg_advisory_unlock(4855284205)")
        assert build_parts(second)

    assert is_whole(watching)


def test_days_that_are_made_meanwhile_have_their_part(old, watching):
    with connect(old, prepare=True) as connection:
        migrating.migrate(connection, "here", plan=with_the_indexes())
    watching.execute("select penstock.make_day(floor(extract(epoch from now()) / 86400)::int + 30)")

    PostgresBroker(old).close()

    assert is_whole(watching)


def test_a_login_that_may_not_build_goes_on_without(old, watching):
    with connect(old, prepare=True) as owner:
        migrating.migrate(owner, "here", plan=with_the_indexes())
    watching.execute("create role penstock_guest_of_a_test login")
    try:
        for grant in ("usage on schema penstock", "select on all tables in schema penstock"):
            watching.execute(f"grant {grant} to penstock_guest_of_a_test")
        watching.execute("set role penstock_guest_of_a_test")
        with pytest.raises(errors.InsufficientPrivilege):
            watching.execute("create index on penstock.history_other (at)")
        watching.execute("reset role")
        with connect(old, prepare=True) as guest:
            guest.execute("set role penstock_guest_of_a_test")
            assert not build_parts(guest)
    finally:
        watching.execute("drop owned by penstock_guest_of_a_test")
        watching.execute("drop role penstock_guest_of_a_test")
