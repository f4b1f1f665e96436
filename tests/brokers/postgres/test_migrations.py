"""Migrations on PostgreSQL: the schema, then made-up steps, each once, old and new side by side.

There was no release yet: schema.sql is the only step that there is.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import psycopg
import pytest

from penstock.broker.lake_mark import Mark
from penstock.broker.views import WorkerRow
from penstock.brokers import migrate_store, migration_sql, store_condition
from penstock.brokers.postgres import PostgresBroker, migrating
from penstock.brokers.postgres.connection import Connection, connect
from penstock.brokers.postgres.migration_steps import (
    MigrationPlan,
    MigrationStep,
    steps_in,
    this_plan,
)
from penstock.brokers.postgres.statements import functions, sql
from penstock.errors import Refused, SchemaTooNew, StoreUnreachable
from penstock.testing.conformance.factories import a_job
from penstock.testing.postgres.programs import find_programs
from tests.brokers.postgres.catalogue import catalogue

KNOWN = this_plan().newest
NEXT = KNOWN + 1
ADD = MigrationStep(NEXT, "colour.sql", False, "alter table penstock.batch add column colour text;")
DROP = MigrationStep(NEXT, "colour.post.sql", True, "alter table penstock.batch drop column at;")


def next_release(*steps: MigrationStep, functions: str | None = None) -> MigrationPlan:
    """What a later Penstock would bring."""
    plan = this_plan()
    return replace(
        plan,
        steps=plan.steps + steps,
        functions=plan.functions if functions is None else functions,
        release="99.0",
    )


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with connect(postgres_url, prepare=False) as connection:
        yield connection


def columns(connection: Connection, table: str) -> set[str]:
    cursor = connection.execute(
        "select column_name from information_schema.columns"
        " where table_schema = 'penstock' and table_name = %s",
        (table,),
    )
    return {name for (name,) in cursor}


def psql(url: str, script: str) -> subprocess.CompletedProcess[str]:
    program = find_programs().folder / "psql"
    return subprocess.run(
        [program, "--no-psqlrc", url], input=script, text=True, capture_output=True, check=False
    )


def test_a_store_that_the_broker_made_has_the_schema(postgres_url, migrated_postgres):
    with psycopg.connect(postgres_url) as written:
        written.execute(sql.schema)
        written.execute(functions())

    assert catalogue(migrated_postgres.url) == catalogue(postgres_url)
    assert any("penstock.claim" in name for name, _ in catalogue(postgres_url)["functions"])


def test_steps_are_read_in_order_and_told_apart(tmp_path):
    for name in ("0002_b.post.sql", "0002_b.pre.sql", "0001_a.sql", "0010_c.sql"):
        (tmp_path / name).write_text("select 1;")

    steps = steps_in(tmp_path)

    assert [(step.number, step.post) for step in steps] == [
        (1, False),
        (2, False),
        (2, True),
        (10, False),
    ]


def test_a_new_store_gets_all_steps_and_the_partitions_of_the_coming_days(connection):
    meta = migrating.migrate(connection, "here", plan=next_release(ADD, DROP))

    assert (meta["schema"], meta["post"]) == (str(NEXT), str(NEXT))
    assert "colour" in columns(connection, "batch")
    assert "at" not in columns(connection, "batch")
    [(days,)] = connection.execute(
        "select count(*) from pg_class where relname ~ '^(sent|history)_[0-9]{8}$'"
    )
    assert days == 16


def test_an_open_applies_what_both_can_live_with_and_leaves_the_rest(connection):
    migrating.migrate(connection, "here")

    migrating.open_schema(connection, "here", create=False, plan=next_release(ADD, DROP))

    assert {"colour", "at"} <= columns(connection, "batch")
    plan = next_release(ADD, DROP)
    assert plan.pending_post(migrating.read_meta(connection)) == [DROP]


def test_an_older_penstock_opens_a_store_that_has_only_grown(connection, postgres_url, clock):
    migrating.migrate(connection, "here", plan=next_release(ADD, DROP))
    connection.execute("update penstock.meta set value = '0' where name = 'post'")
    connection.execute("alter table penstock.batch add column at double precision")

    broker = PostgresBroker(postgres_url, clock=clock)

    broker.enqueue([a_job(clock)])
    broker.close()


def test_an_older_penstock_is_refused_once_something_was_taken_away(connection, postgres_url):
    migrating.migrate(connection, "here", plan=next_release(ADD, DROP))
    before = catalogue(postgres_url)

    with pytest.raises(
        SchemaTooNew, match=rf"has schema {NEXT}, this Penstock knows {KNOWN}; upgrade"
    ):
        PostgresBroker(postgres_url)

    assert catalogue(postgres_url) == before


def test_what_older_workers_need_goes_only_when_they_are_gone(connection, postgres_url):
    broker = PostgresBroker(postgres_url)
    broker.renew([WorkerRow(id="old", host="attic", pid=7, penstock="0.1.0")])
    broker.renew([WorkerRow(id="older", host="attic", pid=8)])
    plan = next_release(ADD, DROP)

    with pytest.raises(Refused) as refusal:
        migrating.migrate(connection, "here", plan=plan, post=True)

    assert "old (attic, pid 7, Penstock 0.1.0)" in str(refusal.value)
    assert "older (attic, pid 8, an older Penstock)" in str(refusal.value)
    assert "colour" not in columns(connection, "batch")

    broker.recover(dead="old")
    broker.recover(dead="older")
    broker.renew([WorkerRow(id="new", penstock="99.0")])
    broker.close()
    meta = migrating.migrate(connection, "here", plan=plan, post=True)

    assert (meta["schema"], meta["post"]) == (str(NEXT), str(NEXT))
    assert "at" not in columns(connection, "batch")


def test_functions_of_a_newer_penstock_are_not_put_back_by_an_older_one(connection):
    newer = next_release(
        functions=this_plan().functions.replace(
            "-- Whether a rule covers this lane.", "-- Whether any rule covers this lane."
        )
        + "create or replace function penstock.newest() returns integer"
        " language sql as 'select 99';"
    )
    migrating.migrate(connection, "here")
    migrating.open_schema(connection, "here", create=False, plan=newer)
    said = migrating.read_meta(connection)["functions"]

    migrating.open_schema(connection, "here", create=False)

    assert migrating.read_meta(connection)["functions"] == said == f"99.0 {newer.digest}"
    assert connection.execute("select penstock.newest()").fetchone() == (99,)


def test_functions_of_the_same_release_are_replaced_when_they_differ(connection):
    migrating.migrate(connection, "here")
    connection.execute("update penstock.meta set value = %s where name = 'functions'", ("0.0.9 x",))

    migrating.open_schema(connection, "here", create=False)

    plan = this_plan()
    assert migrating.read_meta(connection)["functions"] == f"{plan.release} {plan.digest}"


def test_many_that_open_a_new_database_at_once_migrate_it_once(postgres_url):
    opened: list[str] = []
    errors: list[BaseException] = []
    at_once = threading.Barrier(8)

    def open_it() -> None:
        try:
            with connect(postgres_url, prepare=False) as connection:
                at_once.wait()
                opened.append(migrating.open_schema(connection, "here", create=True))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(opened) == 8
    assert len(set(opened)) == 1


def test_two_that_bring_a_store_forward_at_once_apply_each_step_once(connection, postgres_url):
    migrating.migrate(connection, "here")
    slow = MigrationStep(
        NEXT, "slow.sql", False, "select pg_sleep(0.3); create table penstock.extra ();"
    )
    errors: list[BaseException] = []

    def forward() -> None:
        try:
            with connect(postgres_url, prepare=False) as another:
                migrating.open_schema(another, "here", create=False, plan=next_release(slow))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=forward) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert migrating.read_meta(connection)["schema"] == str(NEXT)


def test_a_migration_that_is_killed_leaves_nothing_half_done(connection, postgres_url):
    migrating.migrate(connection, "here")
    before, meta = catalogue(postgres_url), migrating.read_meta(connection)
    slow = MigrationStep(NEXT + 1, "slow.sql", False, "select pg_sleep(60);")
    errors: list[BaseException] = []

    def forward() -> None:
        try:
            with connect(postgres_url, prepare=False) as another:
                migrating.migrate(another, "here", plan=next_release(ADD, slow))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=forward)
    thread.start()
    killed = 0
    while not killed:
        [(killed,)] = connection.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()"
            " and datname = current_database()"
        )
    thread.join()

    assert len(errors) == 1
    assert isinstance(errors[0], psycopg.OperationalError)
    assert catalogue(postgres_url) == before
    assert migrating.read_meta(connection) == meta

    migrating.migrate(connection, "here", plan=next_release(ADD))

    assert "colour" in columns(connection, "batch")


def test_a_table_in_use_is_not_waited_for_long_and_nothing_is_changed(
    connection, postgres_url, monkeypatch
):
    monkeypatch.setattr(migrating, "_TRIES", 1)
    migrating.migrate(connection, "here")
    with psycopg.connect(postgres_url) as reader:
        reader.execute("select * from penstock.batch")

        with pytest.raises(StoreUnreachable, match=r"was not migrated, and is unchanged"):
            migrating.migrate(connection, "here", plan=next_release(ADD))

    assert "colour" not in columns(connection, "batch")


def test_what_sql_prints_works_with_psql(connection, postgres_url, migrated_postgres):
    printed = migrating.migration_sql({})

    result = psql(postgres_url, printed)

    assert result.returncode == 0, result.stderr
    assert catalogue(postgres_url) == catalogue(migrated_postgres.url)
    assert this_plan().is_current(migrating.read_meta(connection))
    assert migrating.migration_sql(migrating.read_meta(connection)).startswith("-- Nothing to do")


def test_what_sql_prints_for_one_state_is_refused_by_another(connection, postgres_url):
    migrating.migrate(connection, "here")
    plan = next_release(ADD, DROP)
    meta = migrating.read_meta(connection)
    printed = migrating.migration_sql(meta, plan=plan, post=True)

    first, again = psql(postgres_url, printed), psql(postgres_url, printed)

    assert first.returncode == 0, first.stderr
    assert again.returncode != 0
    assert "was migrated since this script was printed" in again.stderr
    assert migrating.read_meta(connection)["post"] == str(NEXT)
    assert migrating.migrate(connection, "here", plan=plan) == migrating.read_meta(connection)


def test_a_store_that_is_not_there_is_not_made_by_who_only_looks(connection):
    with pytest.raises(
        StoreUnreachable, match=r"there is no store in here yet.*penstock migrate up"
    ):
        migrating.open_schema(connection, "here", create=False)

    assert migrating.read_meta(connection) == {}


def test_a_worker_declares_its_release(postgres_url):
    broker = PostgresBroker(postgres_url)
    broker.renew([WorkerRow(id="w", penstock="0.1.0")])

    [row] = broker.workers()
    broker.close()

    assert row.penstock == "0.1.0"
    assert msgspec.json.decode(msgspec.json.encode(row))["penstock"] == "0.1.0"


def test_a_schema_that_was_made_for_the_app_is_used(logins):
    name = logins.login()
    with psycopg.connect(logins.url) as connection:
        connection.execute(f"create schema penstock authorization {name}".encode())

    PostgresBroker(logins.url_of(name)).close()  # which may make no schema itself

    with psycopg.connect(logins.url) as connection:
        owner = "select relowner::regrole::text from pg_class where oid = 'penstock.meta'::regclass"
        assert connection.execute(owner).fetchone() == (name,)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("create table penstock.meta (a integer)", "penstock.meta in database .* other columns"),
        ("create table penstock.meta (name text, value text)", "penstock.meta .* is empty"),
        (
            "create table penstock.meta as select 'colour' as name, 'red' as value",
            "penstock.meta .* names no store",
        ),
        ("create table penstock.job (id integer)", 'not Penstock\'s \\(relation "job"'),
    ],
)
def test_what_somebody_else_put_into_the_schema_is_named_and_left_alone(
    postgres_url, statement, says
):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create schema penstock")
        connection.execute(statement.encode())

    for attempt in (PostgresBroker, lambda url: migrate_store(url, post=True)):
        with pytest.raises(Refused, match=f"(?s){says}.*name another database with --url"):
            attempt(postgres_url)

    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute(
            "select count(*) from pg_class where relkind = 'r'"
            " and relnamespace = 'penstock'::regnamespace"
        )
        assert tables.fetchone() == (1,)


def test_a_store_of_the_step_before_is_brought_forward(connection, postgres_url, clock):
    """With what it holds: its history waits for lakes as any other."""
    migrating.migrate(connection, "here")
    connection.execute(
        "insert into penstock.history (kind, at) values ('event', %s)", (clock.now() - 86400,)
    )

    migrating.open_schema(connection, "here", create=False, plan=next_release(ADD))

    assert "colour" in columns(connection, "batch")
    broker = PostgresBroker(postgres_url, clock=clock)
    broker.put(Mark(lake="a"))
    broker.prune(clock.now())
    assert [row.kind for row in broker.history()] == ["event", "lake"]
    broker.close()


@pytest.fixture
def unreleased(postgres_url: str) -> str:
    """What a development version left: numbered higher than anything that there is now."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create schema penstock")
        connection.execute(
            "create table penstock.meta (name text primary key, value text not null)"
        )
        connection.execute("insert into penstock.meta values ('schema', '11'), ('store', 'x')")
        connection.execute("create table penstock.job (id uuid primary key)")
    return postgres_url


@pytest.mark.parametrize(
    "attempt", [PostgresBroker, migrate_store, migration_sql], ids=["open", "migrate", "sql"]
)
def test_a_store_of_a_development_version_is_refused_with_the_way_out(unreleased, attempt):
    before = catalogue(unreleased)

    with pytest.raises(Refused) as refusal:
        attempt(unreleased)

    sentence = str(refusal.value)
    assert "was made by a development version of Penstock (schema 11)" in sentence
    assert "drop schema penstock cascade" in sentence
    assert "name another database with --url" in sentence
    assert catalogue(unreleased) == before


def test_the_doctor_names_a_store_of_a_development_version(unreleased):
    found = store_condition(unreleased)

    assert found.unseen is not None
    assert "made by a development version of Penstock (schema 11)" in found.unseen.says


def test_after_its_schema_was_dropped_a_new_store_is_made_in_its_place(unreleased, clock):
    with psycopg.connect(unreleased) as connection:
        connection.execute("drop schema penstock cascade")

    broker = PostgresBroker(unreleased, clock=clock)
    broker.enqueue([a_job(clock)])

    assert sum(count.ready for count in broker.count()) == 1
    broker.close()
