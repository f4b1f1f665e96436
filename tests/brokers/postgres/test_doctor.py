"""The doctor on PostgreSQL: each finding on a real server in that state, with its remedy."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

import psycopg
import pytest

from penstock.app.version import RELEASE
from penstock.broker.views import WorkerRow
from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.doctor_checks import (
    CheckContext,
    open_transactions,
    server,
    wal_and_notify,
)
from penstock.brokers.postgres.migrating import read_meta
from penstock.brokers.postgres.migration_steps import this_plan
from penstock.enqueue.ids import Ids
from penstock.job import Job, succeeded
from penstock.operate.doctor import Colour
from penstock.testing.conformance.factories import claim_for
from tests.brokers.postgres.examined import bad, findings, restart, run


def test_a_healthy_store_is_green_and_everything_was_looked_at(own_postgres):
    url = own_postgres.create_database()
    broker = PostgresBroker(url)
    broker.renew([WorkerRow(id="w", penstock=RELEASE)])
    broker.close()

    found = findings(url)

    assert {each.colour for each in found} == {Colour.GREEN}
    assert not [each for each in found if "not checked" in each.says]
    names = {each.name for each in found}
    assert names >= {"horizon", "vacuum", "wal", "settings", "clock", "schema", "functions"}
    assert names >= {"connections", "partitions", "counts", "notifications"}


def test_wrong_settings_of_the_server_are_red(own_postgres):
    url = own_postgres.create_database()
    PostgresBroker(url).close()
    restart(own_postgres, fsync="off", full_page_writes="off", autovacuum="off")

    red = [each for each in findings(url, "settings") if each.colour is Colour.RED]

    assert [each.says.partition(":")[0] for each in red] == [
        "fsync is off",
        "full_page_writes is off",
        "autovacuum is off",
    ]
    assert all("= on" in each.remedy for each in red)


def test_a_database_that_does_not_wait_for_its_disk_is_red(store):
    name = store.rpartition("/")[2].partition("?")[0]
    run(store, f"alter database {name} set synchronous_commit = off")

    [off] = [each for each in findings(store, "settings") if "synchronous_commit" in each.says]

    assert off.colour is Colour.RED
    assert "loses jobs that were accepted" in off.says


def test_a_session_may_stay_idle_for_ever_which_is_a_hint(store):
    [hint] = [
        each
        for each in findings(store, "settings")
        if "idle_in_transaction_session_timeout is off" in each.says
    ]

    assert hint.colour is Colour.GREEN
    assert "idle_in_transaction_session_timeout" in hint.remedy


def test_a_server_that_is_too_old_is_named():
    [trouble] = server.version(130_004)

    assert trouble == Trouble(
        "PostgreSQL 13 is not supported: Penstock needs 14 or newer",
        "upgrade it to 14 or newer",
        name="server",
    )
    assert list(server.version(140_000)) == []


def test_a_standby_is_red(own_postgres):
    url = own_postgres.create_database()
    PostgresBroker(url).close()
    own_postgres.stop()
    standby = own_postgres.data / "standby.signal"
    standby.touch()
    os.chown(standby, own_postgres.data.stat().st_uid, own_postgres.data.stat().st_gid)
    own_postgres.start()

    found = bad(url, "server")

    assert found.colour is Colour.RED
    assert "it is a standby" in found.says
    assert "primary" in found.remedy


@pytest.mark.usefixtures("own_postgres")
def test_the_session_that_holds_the_horizon_is_named(context, store):
    with psycopg.connect(store, application_name="nightly-report") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select count(*) from penstock.meta")

        [held] = [
            each
            for each in open_transactions.horizon(context, long=0.0)
            if isinstance(each, Trouble)
        ]

        pid = reader.info.backend_pid
    assert f"pid {pid} (nightly-report) of {context.connection.info.user}" in held.says
    assert "idle in transaction, open for" in held.says
    assert "vacuum cannot remove rows that its snapshot may still see" in held.says
    assert f"pg_terminate_backend({pid})" in held.remedy


def test_a_writer_that_freezes_the_history_is_told_apart(context, store):
    with psycopg.connect(store) as writer:
        writer.execute("create table own (id integer)")

        [held] = [
            each
            for each in open_transactions.horizon(context, long=0.0)
            if isinstance(each, Trouble)
        ]

    assert "readers of the history by position wait for it" in held.says


@pytest.mark.usefixtures("own_postgres")
def test_a_short_transaction_is_worth_a_fact_only(store):
    with psycopg.connect(store, application_name="quick") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1 from penstock.meta")

        [fact] = findings(store, "horizon")

    assert fact.colour is Colour.GREEN
    assert "(quick)" in fact.says


def test_a_prepared_transaction_is_named(own_postgres):
    restart(own_postgres, max_prepared_transactions=2)
    url = own_postgres.create_database()
    PostgresBroker(url).close()
    run(url, "begin", "create table own (id integer)", "prepare transaction 'lost'")

    with connect(url, prepare=False) as connection:
        context = CheckContext(connection, url, False, read_meta(connection), this_plan())
        found = [
            each
            for each in open_transactions.horizon(context, long=0.0)
            if isinstance(each, Trouble)
        ]

    [prepared] = found
    assert "prepared transaction 'lost' of postgres" in prepared.says
    assert "rollback prepared 'lost'" in prepared.remedy


def test_a_replication_slot_that_nobody_reads_is_named(own_postgres):
    url = own_postgres.create_database()
    PostgresBroker(url).close()
    run(url, "select pg_create_physical_replication_slot('forgotten', true)")

    slot = bad(url, "horizon")

    assert "the replication slot forgotten has no reader; it keeps" in slot.says
    assert "pg_drop_replication_slot('forgotten')" in slot.remedy


@pytest.mark.usefixtures("own_postgres")
def test_wal_for_each_job_is_measured_between_two_looks(context, store):
    broker = PostgresBroker(store)
    before = wal_and_notify.mark(context)
    _work_off(broker, 200, size=100)

    [small] = wal_and_notify.wal_per_job(context, before)

    before = wal_and_notify.mark(context)
    _work_off(broker, 200, size=30_000)
    [large] = wal_and_notify.wal_per_job(context, before)
    broker.close()

    assert isinstance(small, Fact)
    assert "bytes of WAL per job: all that the server wrote in" in small.says
    assert "divided by the 200 jobs that ended" in small.says
    assert isinstance(large, Trouble)
    assert "max_wal_size" in large.remedy


def _work_off(broker: PostgresBroker, count: int, size: int) -> None:
    ids = Ids()
    body = b'{"args":{"text":"' + os.urandom(size // 2).hex().encode() + b'"}}'
    broker.enqueue([Job(task="send", id=ids.next(), body=body) for _ in range(count)])
    jobs = claim_for(broker, WorkerRow(id="w", tasks={"send": 1}), None, count)
    assert len(jobs) == count
    broker.settle([(job, succeeded()) for job in jobs])


def test_too_few_connections_for_the_live_workers_are_named(own_postgres):
    restart(own_postgres, max_connections=20)
    url = own_postgres.create_database()
    broker = PostgresBroker(url)
    broker.renew([WorkerRow(id=f"w{number}", penstock=RELEASE) for number in range(5)])
    broker.close()

    few = bad(url, "connections")
    with ExitStack() as open_ones:
        for _ in range(15):
            open_ones.enter_context(psycopg.connect(url))
        full = bad(url, "connections")

    assert few.colour is Colour.YELLOW
    assert "5 live workers use up to 20 connections, and max_connections leaves 17" in few.says
    assert full.colour is Colour.RED
    assert "16 of 17 connections are in use" in full.says
    assert "max_connections" in full.remedy


@pytest.mark.parametrize(("ahead", "colour"), [(5, Colour.YELLOW), (-300, Colour.RED)])
def test_a_clock_that_differs_from_the_servers_is_named(store, monkeypatch, ahead, colour):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead)

    clock = bad(store, "clock")

    assert clock.colour is colour
    assert "differs by" in clock.says
    assert "NTP" in clock.remedy


def test_a_database_that_is_read_only_by_default_is_red(store):
    name = store.rpartition("/")[2].partition("?")[0]
    run(store, f"alter database {name} set default_transaction_read_only = on")

    [found] = [each for each in findings(store, "settings") if "read_only" in each.says]

    assert found.colour is Colour.RED
    assert found.says.startswith("default_transaction_read_only is on")
    assert f"alter database {name} reset" in found.remedy


def test_another_isolation_is_a_hint(store):
    name = store.rpartition("/")[2].partition("?")[0]
    run(store, f"alter database {name} set default_transaction_isolation = 'repeatable read'")

    [found] = [each for each in findings(store, "settings") if "isolation" in each.says]

    assert found.colour is Colour.GREEN
    assert "repeatable read" in found.says
    assert found.remedy
