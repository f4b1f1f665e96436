"""The doctor on PostgreSQL: each finding on a real server in that state, with its remedy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import psycopg
import pytest

from penstock.broker import WorkerRow
from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.looks import Look, horizon, server, skew, tables, traffic
from penstock.brokers.postgres.migrating import read_meta
from penstock.brokers.postgres.steps import Step, this_plan
from penstock.examine import Colour, Finding, examine
from penstock.ids import Ids
from penstock.job import Job, succeeded
from penstock.release import release
from penstock.testing.postgres import Server
from tests.brokers.postgres.logins import Logins
from tests.stories.pooler import Pooler


def findings(url: str, name: str | None = None) -> list[Finding]:
    found = examine(url)
    return [each for each in found if name in {None, each.name}]


def bad(url: str, name: str) -> Finding:
    """The one finding of this name that is not green."""
    [found] = [each for each in findings(url, name) if each.colour is not Colour.GREEN]
    assert found.remedy
    return found


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """A store of its own, on a server of its own for a test that looks at all of it."""
    if "own_postgres" in request.fixturenames:
        url = request.getfixturevalue("own_postgres").create_database()
    else:
        url = request.getfixturevalue("postgres_url")
    PostgresBroker(url).close()
    return url


@pytest.fixture
def look(store: str) -> Iterator[Look]:
    with connect(store, prepare=False) as connection:
        yield Look(connection, store, False, read_meta(connection), this_plan())


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def restart(server: Server, **settings: str | int) -> None:
    server.stop()
    server.settings |= settings
    server.start()


def test_a_healthy_store_is_green_and_everything_was_looked_at(own_postgres):
    url = own_postgres.create_database()
    broker = PostgresBroker(url)
    broker.renew([WorkerRow(id="w", penstock=release())])
    broker.close()

    found = findings(url)

    assert {each.colour for each in found} == {Colour.GREEN}
    assert not [each for each in found if "not looked at" in each.says]
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
    [hint] = [each for each in findings(store, "settings") if "idle in a transaction" in each.says]

    assert hint.colour is Colour.GREEN
    assert "idle_in_transaction_session_timeout" in hint.remedy


def test_a_server_that_is_too_old_is_named():
    [trouble] = server.version(130_004)

    assert trouble == Trouble(
        "PostgreSQL 13 is older than 14", "upgrade it to 14 or newer", name="server"
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
def test_the_session_that_holds_the_horizon_is_named(look, store):
    with psycopg.connect(store, application_name="nightly-report") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select count(*) from penstock.meta")

        [held] = [each for each in horizon.horizon(look, long=0.0) if isinstance(each, Trouble)]

        pid = reader.info.backend_pid
    assert f"pid {pid} (nightly-report) of {look.connection.info.user}" in held.says
    assert "idle in transaction, open for" in held.says
    assert "dead rows behind its snapshot stay" in held.says
    assert f"pg_terminate_backend({pid})" in held.remedy


def test_a_writer_that_freezes_the_history_is_told_apart(look, store):
    with psycopg.connect(store) as writer:
        writer.execute("create table own (id integer)")

        [held] = [each for each in horizon.horizon(look, long=0.0) if isinstance(each, Trouble)]

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
        look = Look(connection, url, False, read_meta(connection), this_plan())
        found = [each for each in horizon.horizon(look, long=0.0) if isinstance(each, Trouble)]

    [prepared] = found
    assert "prepared transaction 'lost' of postgres" in prepared.says
    assert "rollback prepared 'lost'" in prepared.remedy


def test_a_replication_slot_that_nobody_reads_is_named(own_postgres):
    url = own_postgres.create_database()
    PostgresBroker(url).close()
    run(url, "select pg_create_physical_replication_slot('forgotten', true)")

    slot = bad(url, "horizon")

    assert "nobody uses the replication slot forgotten, which keeps" in slot.says
    assert "pg_drop_replication_slot('forgotten')" in slot.remedy


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


@pytest.mark.usefixtures("own_postgres")
def test_wal_for_each_job_is_measured_between_two_looks(look, store):
    broker = PostgresBroker(store)
    before = traffic.mark(look)
    _work_off(broker, 200, size=100)

    [small] = traffic.wal_per_job(look, before)

    before = traffic.mark(look)
    _work_off(broker, 200, size=30_000)
    [large] = traffic.wal_per_job(look, before)
    broker.close()

    assert isinstance(small, Fact)
    assert "bytes of WAL a job: all that the server wrote in" in small.says
    assert "by the 200 jobs that ended" in small.says
    assert isinstance(large, Trouble)
    assert "max_wal_size" in large.remedy


def _work_off(broker: PostgresBroker, count: int, size: int) -> None:
    ids = Ids()
    body = b'{"args":{"text":"' + os.urandom(size // 2).hex().encode() + b'"}}'
    broker.enqueue([Job(task="send", id=ids.next(), body=body) for _ in range(count)])
    jobs = broker.claim(WorkerRow(id="w", tasks={"send": 1}), None, count)
    assert len(jobs) == count
    broker.settle([(job, succeeded()) for job in jobs])


def test_too_few_connections_for_the_live_workers_are_named(own_postgres):
    restart(own_postgres, max_connections=20)
    url = own_postgres.create_database()
    broker = PostgresBroker(url)
    broker.renew([WorkerRow(id=f"w{number}", penstock=release()) for number in range(5)])
    broker.close()

    few = bad(url, "connections")
    with ExitStack() as open_ones:
        for _ in range(15):
            open_ones.enter_context(psycopg.connect(url))
        full = bad(url, "connections")

    assert few.colour is Colour.YELLOW
    assert "5 live workers use up to 20 connections, and there are 17" in few.says
    assert full.colour is Colour.RED
    assert "16 of 17 connections are in use" in full.says
    assert "max_connections" in full.remedy


@pytest.mark.parametrize(("ahead", "colour"), [(5, Colour.YELLOW), (-300, Colour.RED)])
def test_a_clock_that_differs_from_the_servers_is_named(store, monkeypatch, ahead, colour):
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead)

    clock = bad(store, "clock")

    assert clock.colour is colour
    assert "this machine and the store differ by" in clock.says
    assert "NTP" in clock.remedy


def test_a_schema_that_has_only_grown_is_worth_knowing_and_one_that_lacks_something_is_red(store):
    run(store, "update penstock.meta set value = '77' where name = 'schema'")
    grown = bad(store, "schema")
    run(store, "insert into penstock.meta values ('post', '77')")

    lacking = bad(store, "schema")

    assert grown.colour is Colour.YELLOW
    assert "77, newer than this Penstock, which can use it as it is" in grown.says
    assert lacking.colour is Colour.RED
    assert lacking.remedy == "upgrade Penstock here"


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("0.0.1", "the functions are those of Penstock 0.0.1, this is"),
        ("99.0", "the functions are those of Penstock 99.0, newer than"),
    ],
)
def test_functions_of_another_release_are_named(look, by, says):
    meta = {**look.meta, "functions": f"{by} 0123"}

    [trouble] = skew.functions(look._replace(meta=meta))

    assert isinstance(trouble, Trouble)
    assert trouble.says.startswith(says)
    assert trouble.remedy


def test_post_steps_that_wait_are_named(look):
    post = Step(2, "0002_colour.post.sql", True, "select 1;")
    plan = replace(look.plan, steps=(*look.plan.steps, post))

    [trouble] = skew.post_steps(look._replace(plan=plan))

    assert "0002_colour.post.sql still to be applied" in trouble.says
    assert "penstock migrate up --post" in trouble.remedy


def test_workers_of_different_releases_are_named(store):
    broker = PostgresBroker(store)
    broker.renew(
        [
            WorkerRow(id="old", host="attic", pid=7, penstock="0.0.1"),
            WorkerRow(id="new", host="loft", pid=8, penstock=release()),
        ]
    )
    broker.close()

    releases = bad(store, "releases")

    assert "0.0.1: old (attic, pid 7)" in releases.says
    assert f"{release()}: new (loft, pid 8)" in releases.says


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

    assert "2 rows lie in penstock.history_other" in beside.says


def test_counts_that_nobody_adds_up_are_named(store):
    left = tables.MANY_UNFOLDED + 100
    run(
        store,
        "insert into penstock.tally (lane, state, minute, jobs)"
        f" select 1, 'ready', 0, 1 from generate_series(0, {left})",
    )

    counts = bad(store, "counts")

    assert f"{left:,} counts are not added up" in counts.says
    assert "start a worker" in counts.remedy


def test_a_pooler_that_the_url_does_not_name_is_found_out(store):
    with Pooler(store) as pooler:
        found = bad(pooler.url, "notifications")
        [named] = findings(f"{pooler.url}?pooler=true", "notifications")

    assert "a pooler that hands sessions around is in between" in found.says
    assert "?pooler=true" in found.remedy
    assert named.colour is Colour.GREEN
    assert "as the URL says" in named.says


def test_a_plain_login_is_told_what_it_could_not_look_at(store, logins: Logins):
    name = logins.login()
    logins.grant([name], [])
    with psycopg.connect(store) as reader:
        reader.execute("select 1")

        found = findings(logins.url_of(name))

    [hidden] = [each for each in found if "not to be seen" in each.says]
    assert f"grant pg_read_all_stats to {name}" in hidden.remedy
    assert {each.name for each in found} >= {"vacuum", "partitions", "connections", "wal"}
    assert not [each for each in found if each.says.startswith("not looked at: syntax")]


def test_a_server_that_does_not_answer_is_red_with_its_remedy(own_postgres):
    url = own_postgres.url()
    own_postgres.stop()

    found = findings(url)

    assert any(each.colour is Colour.RED and each.remedy for each in found)


def only(url: str) -> Finding:
    """The one thing that can be said of a store that cannot be looked at."""
    [found] = findings(url)
    assert found.colour is Colour.RED
    assert "no store" not in found.says
    return found


def test_a_server_that_is_down_is_said_to_be_down():
    found = only("postgresql://nobody@127.0.0.1:1/shop")

    assert "does not answer" in found.says
    assert "refused" in found.says
    assert found.remedy.startswith("start it")


def test_a_database_that_does_not_exist_is_named(store):
    found = only(f"{store.partition('?')[0]}_gone")

    assert "_gone" in found.says
    assert "does not exist" in found.says
    assert found.remedy == "create it, or name another one with --url"


def test_a_login_without_rights_on_the_schema_is_told_what_to_grant(store, logins: Logins):
    found = only(logins.url_of(logins.login()))

    assert "permission denied for schema penstock" in found.says
    assert "penstock migrate roles --login" in found.remedy


def test_a_wrong_password_is_called_one():
    with Server() as server:
        run(server.url(), "create role ada login password 'right'")
        rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (server.data / "pg_hba.conf").write_text(rules)
        run(server.url(), "select pg_reload_conf()")

        found = only(f"postgresql://ada:wrong@127.0.0.1:{server.port}/postgres")

    assert "password authentication failed" in found.says
    assert found.remedy == "give the right user and password in the URL"


def test_a_table_that_is_not_ours_is_no_store(postgres_url):
    run(postgres_url, "create schema penstock", "create table penstock.meta (a integer)")

    assert "penstock.meta" in only(postgres_url).says


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


def test_a_store_that_is_whole_lacks_nothing(look):
    assert list(skew.missing(look)) == []
    assert list(tables.positions(look)) == []


def test_a_history_of_another_server_is_to_be_renumbered(store, look):
    run(
        store,
        "insert into penstock.history (position, kind, at) values"
        " ((10 * pg_current_xact_id()::text::bigint) << 20, 'event', 0)",
    )

    [found] = tables.positions(look)

    assert "dump of another" in found.says
    assert "examples/renumber_history.sql" in found.remedy
