"""penstock attach: a table of the user's own is a queue (V13), with columns of its own (V10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import InvalidParameterValue
from typer.testing import CliRunner

from penstock.broker.filter import Filter
from penstock.brokers import attaching
from penstock.brokers.attached import AttachedTable, RowJobs
from penstock.brokers.postgres import PostgresBroker
from penstock.cli.root import root
from penstock.errors import Refused
from penstock.job import Unique

NS = 1_800_000_000_123_456_789

TABLE = """
create schema if not exists shop;
create table shop."Orders; drop table x" (
    id serial primary key, "customer's" text, fires bigint, total numeric, tenant text
)
"""
NAME = 'shop."Orders; drop table x"'


@pytest.fixture
def broker(postgres_url: str) -> Iterator[PostgresBroker]:
    broker = PostgresBroker(postgres_url)
    yield broker
    broker.close()


@pytest.fixture
def connection(broker: PostgresBroker, postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    assert broker.count() == []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("drop schema if exists shop cascade")
        connection.execute(TABLE)
        yield connection
        connection.execute("drop schema shop cascade")


def insert(connection, fires: int | None = None) -> None:
    connection.execute(
        f"""insert into {NAME} ("customer's", fires, total, tenant) values ('ada', %s, 9.5, 'a')""",
        (fires,),
    )


def jobs_in(broker):
    return sorted(broker.find(Filter()).jobs, key=lambda job: job.id)


def args_of(job) -> Any:
    return json.loads(job.body)["args"]


SHIP = RowJobs(
    task="shop:ship",
    queue="orders",
    priority=7,
    args={"number": "id", "who": "customer's"},
    key="customer's",
    unique="id",
    at="fires",
    tags={"tenant": "tenant"},
)


def test_each_row_is_a_job_with_its_commit_and_without_a_restart(broker, connection, postgres_url):
    tables = attaching(postgres_url)
    tables.attach(NAME, SHIP)

    insert(connection, NS)
    with connection.transaction(force_rollback=True):
        insert(connection)

    [job] = jobs_in(broker)
    assert (job.task, job.queue, job.priority) == ("shop:ship", "orders", 7)
    assert args_of(job) == {"number": 1, "who": "ada"}
    assert (job.key, job.unique, job.tags) == ("ada", Unique("1"), {"tenant": "a"})
    # Nanoseconds in, kept to the microsecond.
    assert round(job.run_at * 1_000_000) == NS // 1000


def test_without_arguments_every_column_is_one(broker, connection, postgres_url):
    attaching(postgres_url).attach(NAME, RowJobs(task="shop:ship"))
    insert(connection)

    [job] = jobs_in(broker)
    columns = {"id": 1, "customer's": "ada", "fires": None, "total": 9.5, "tenant": "a"}
    assert args_of(job) == columns


def test_a_dry_run_only_says_the_sql_and_names_are_quoted(broker, connection, postgres_url):
    tables = attaching(postgres_url)
    hostile = RowJobs(task="shop:it", args={"it's') x": "id"})

    done = tables.attach(NAME, hostile, dry_run=True)
    insert(connection)
    assert (jobs_in(broker), tables.attached()) == ([], [])

    connection.execute(done)
    insert(connection)
    assert [args_of(job) for job in jobs_in(broker)] == [{"it's') x": 2}]


def test_attached_again_it_is_replaced_and_detached_it_is_a_table_again(
    broker, connection, postgres_url
):
    tables = attaching(postgres_url)
    tables.attach(NAME, SHIP)
    other = RowJobs(task="shop:" + "x" * 90, args={"number": "id"})
    tables.attach(NAME, other)
    tables.attach(NAME, SHIP)
    table = "shop.Orders; drop table x"
    assert sorted(tables.attached(), key=lambda each: each.jobs.task) == [
        AttachedTable(table, SHIP),
        AttachedTable(table, other),
    ]

    assert tables.detach(NAME, "shop:ship", dry_run=True).startswith("drop trigger")
    assert tables.detach(NAME, "shop:ship")
    assert tables.detach(NAME, "shop:ship") is None
    insert(connection)
    assert [job.task for job in jobs_in(broker)] == [other.task]
    tables.detach(NAME)
    insert(connection)
    assert len(jobs_in(broker)) == 1


@pytest.mark.parametrize(
    ("table", "jobs", "says"),
    [
        ("shop.nothing", SHIP, "is not in this database"),
        ("shop.x; drop schema shop", SHIP, "is not in this database"),
        (NAME, RowJobs(task="shop:ship", key="nothing"), "has no column 'nothing': there are id"),
        (NAME, RowJobs(task="./x.py"), "is a path"),
        (NAME, RowJobs(task="a:b", queue="no spaces"), "queue 'no spaces'"),
    ],
)
def test_what_cannot_be_attached_is_a_sentence(connection, postgres_url, table, jobs, says):
    with pytest.raises(Refused, match=says):
        attaching(postgres_url).attach(table, jobs)


def test_a_column_that_is_gone_stops_the_insert_and_says_what_helps(connection, postgres_url):
    attaching(postgres_url).attach(NAME, SHIP)
    connection.execute(f"alter table {NAME} rename tenant to owner")

    with pytest.raises(InvalidParameterValue, match="no column 'tenant' any more"):
        connection.execute(f"insert into {NAME} (total) values (1)")


def test_who_inserts_needs_no_right_on_the_schema(broker, connection, postgres_url):
    attaching(postgres_url).attach(NAME, SHIP)
    connection.execute("drop role if exists penstock_clerk")
    connection.execute("create role penstock_clerk nologin")
    try:
        connection.execute("grant usage on schema shop to penstock_clerk")
        connection.execute("grant all on all tables in schema shop to penstock_clerk")
        connection.execute("grant all on all sequences in schema shop to penstock_clerk")
        with connection.transaction():
            connection.execute("set local role penstock_clerk")
            insert(connection)
        assert len(jobs_in(broker)) == 1
    finally:
        connection.execute("drop owned by penstock_clerk")
        connection.execute("drop role penstock_clerk")


def test_other_stores_say_what_to_do_instead():
    with pytest.raises(Refused, match=r"options\(connection=...\)"):
        attaching("sqlite:///jobs.db")


def test_on_the_command_line(broker, connection, postgres_url):
    def attach(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(root, ["attach", *words, "--url", postgres_url])
        assert result.exit_code == code, result.output
        return result.output

    made = (NAME, "--task", "shop:ship", "--arg", "number=id", "--tag", "t=tenant", "--at", "fires")
    assert "create or replace trigger" in attach(*made, "--dry-run")
    assert attach() == "no table is attached\n"
    attach(*made)
    insert(connection)
    assert [args_of(job) for job in jobs_in(broker)] == [{"number": 1}]
    assert "shop:ship, queue default" in attach()
    assert json.loads(attach("--json"))["jobs"]["at"] == "fires"

    assert json.loads(attach(NAME, "--detach", "--json"))["sql"].startswith("drop trigger")
    assert "is not attached" in attach(NAME, "--detach", code=2)
    assert "--task module:function" in attach(NAME, code=2)
    assert "which table" in attach("--detach", code=2)
