"""The doctor on PostgreSQL: what is wrong with the schema, its rows and who uses them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from penstock.app.version import RELEASE
from penstock.broker.views import WorkerRow
from penstock.brokers.condition import Trouble
from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.doctor_checks import tables, version_skew
from penstock.brokers.postgres.migration_steps import MigrationStep
from penstock.operate.doctor import Colour
from tests.brokers.postgres.examined import bad, findings, run


def test_dead_rows_are_named_against_the_live_ones(store):
    dead = tables.MANY_DEAD + 5000
    run(
        store,
        "alter table penstock.batch set (autovacuum_enabled = off)",
        f"insert into penstock.batch select n::text, 1, 0 from generate_series(1, {dead}) as n",
        "delete from penstock.batch where rows = 1",
    )

    found = bad(store, "vacuum")

    assert f"penstock.batch has {dead:,} dead rows and 0 live ones; never vacuumed" in found.says
    assert "vacuum penstock.batch" in found.remedy


def test_a_schema_that_has_only_grown_is_worth_knowing_and_one_that_lacks_something_is_red(store):
    run(store, "update penstock.meta set value = '77' where name = 'schema'")
    grown = bad(store, "schema")
    run(store, "insert into penstock.meta values ('post', '77')")

    lacking = bad(store, "schema")

    assert grown.colour is Colour.YELLOW
    assert "77, newer than this Penstock, but compatible" in grown.says
    assert lacking.colour is Colour.RED
    assert lacking.remedy == "upgrade Penstock here"


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("0.0.1", "the functions are those of Penstock 0.0.1, this is"),
        ("99.0", "the functions are those of Penstock 99.0, newer than"),
    ],
)
def test_functions_of_another_release_are_named(context, by, says):
    meta = {**context.meta, "functions": f"{by} 0123"}

    [trouble] = version_skew.functions(context._replace(meta=meta))

    assert isinstance(trouble, Trouble)
    assert trouble.says.startswith(says)
    assert trouble.remedy


def test_post_steps_that_wait_are_named(context):
    post = MigrationStep(2, "0002_colour.post.sql", True, "select 1;")
    plan = replace(context.plan, steps=(*context.plan.steps, post))

    [trouble] = version_skew.post_steps(context._replace(plan=plan))

    assert "0002_colour.post.sql still to be applied" in trouble.says
    assert "penstock migrate up --post" in trouble.remedy


def test_workers_of_different_releases_are_named(store):
    broker = PostgresBroker(store)
    broker.renew(
        [
            WorkerRow(id="old", host="attic", pid=7, penstock="0.0.1"),
            WorkerRow(id="new", host="loft", pid=8, penstock=RELEASE),
        ]
    )
    broker.close()

    releases = bad(store, "releases")

    assert "0.0.1: old (attic, pid 7)" in releases.says
    assert f"{RELEASE}: new (loft, pid 8)" in releases.says


def test_days_to_come_without_a_partition_are_named(store):
    run(
        store,
        "do $$ begin execute 'drop table penstock.history_'"
        " || to_char((now() at time zone 'UTC') + interval '1 day', 'YYYYMMDD'); end $$",
    )
    tomorrow = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))

    missing = bad(store, "partitions")

    assert f"there are no partitions for {tomorrow}:" in missing.says
    assert "penstock migrate up" in missing.remedy


def test_rows_beside_the_partitions_are_named(store):
    run(store, "insert into penstock.history (kind, at) values ('event', 4e9), ('event', 5e9)")

    beside = bad(store, "partitions")

    assert "2 rows are in penstock.history_other" in beside.says


def test_counts_that_nobody_adds_up_are_named(store):
    left = tables.MANY_UNFOLDED + 100
    run(
        store,
        "insert into penstock.tally (lane, state, minute, jobs)"
        f" select 1, 'ready', 0, 1 from generate_series(0, {left})",
    )

    counts = bad(store, "counts")

    assert f"{left:,} rows of penstock.tally are not folded" in counts.says
    assert "start a worker" in counts.remedy


def test_tables_that_are_missing_are_named(store):
    run(store, "drop table penstock.tag cascade", "drop index penstock.job_due")

    found = bad(store, "schema")

    assert found.colour is Colour.RED
    assert found.says.endswith("there is no index job_due, index tag_job, table tag")
    assert "backup" in found.remedy


def test_functions_that_are_missing_come_back_as_the_remedy_says(store):
    run(store, "drop function penstock.make_day")

    found = bad(store, "schema")
    assert found.says.endswith(": make_day")

    statement = found.remedy.partition(": ")[2].partition(";")[0]
    run(store, statement)
    PostgresBroker(store).close()
    assert all(each.colour is Colour.GREEN for each in findings(store, "schema"))


def test_a_store_that_is_whole_lacks_nothing(context):
    assert list(version_skew.missing(context)) == []
    assert list(tables.positions(context)) == []


def test_a_history_of_another_server_is_to_be_renumbered(store, context):
    run(
        store,
        "insert into penstock.history (position, kind, at) values"
        " ((10 * pg_current_xact_id()::text::bigint) << 20, 'event', 0)",
    )

    [found] = tables.positions(context)

    assert "dump of another" in found.says
    assert "examples/renumber_history.sql" in found.remedy
