"""Viewer, producer, worker, admin: what each may do; set up by a login that is no superuser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

from penstock.broker.filter import parse_filter
from penstock.broker.views import WorkerRow
from penstock.brokers import migrate_store
from penstock.brokers.postgres import PostgresBroker
from penstock.errors import PenstockError, Refused
from penstock.job import State, Unique, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_flow, a_job, claim, part, settle
from penstock.web.access import Role
from tests.brokers.postgres.logins import Logins
from tests.web.conftest import served


@pytest.fixture
def store(logins: Logins, clock) -> Iterator[PostgresBroker]:
    """The store of its owner, with a job that waits and one that has ended."""
    broker = PostgresBroker(logins.url, clock=clock)
    broker.enqueue([a_job(clock), a_job(clock)])
    [job] = claim(broker)
    settle(broker, job, succeeded(b"1"))
    yield broker
    broker.close()


def member(logins: Logins, role: str) -> str:
    """The URL of a login with this role."""
    name = logins.login()
    logins.grant_roles(**{role: [name]})
    return logins.url_of(name)


def test_a_viewer_reads_everything_that_a_dashboard_shows(store, logins, clock):
    broker = PostgresBroker(member(logins, "viewer"), clock=clock)

    assert len(broker.find(parse_filter(["state:ready"], clock.now())).jobs) == 1
    assert sum(count.ready for count in broker.count()) == 1
    with served(broker) as web:
        client = web.client(Role.ADMIN)
        for path in (
            "/",
            "/jobs",
            "/queues",
            "/flows",
            "/workers",
            "/audit",
            "/schedules",
            "/health",
        ):
            assert client.get(path).status_code == 200, path
        [job] = broker.find(parse_filter(["state:ready"], clock.now())).jobs
        assert client.get(f"/jobs/{job.id}").status_code == 200
        refused = client.post(f"/jobs/{job.id}/cancel", data={"reason": "no"})
        assert refused.status_code == 422
        assert "lacks a privilege" in refused.json()["error"]
    broker.close()


SHOP = """
from penstock import App

app = App()


@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.mark.parametrize(
    "words", [["worker", "shop", "--processes", "2"], ["run", "shop:add", "2", "3"]]
)
def test_a_login_that_may_not_work_ends_a_worker_with_what_it_lacks(words, store, logins, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    url = member(logins, "producer")

    ended = subprocess.run(
        [sys.executable, "-m", "penstock", *words, "--url", url],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert ended.returncode == 2, ended.stderr
    assert "permission denied for table" in ended.stderr
    assert "`penstock migrate roles --worker LOGIN` prints what" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "insert into penstock.history (kind, at, login) values ('rule', 0, session_user)",
        "insert into penstock.tally (lane, state, minute, jobs) values (0, 'ready', 0, 1)",
        "delete from penstock.parcel",
        "update penstock.job set state = 'ready'",
        "delete from penstock.rule",
        "select nextval('penstock.history_order')",
        "select penstock.prune_evidence(0, 0)",
    ],
)
@pytest.mark.usefixtures("store")
def test_a_viewer_writes_nothing(logins, statement):
    with (
        psycopg.connect(member(logins, "viewer")) as connection,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        connection.execute(statement.encode())


def test_a_producer_enqueues_whatever_the_options(store, logins, clock):
    broker = PostgresBroker(member(logins, "producer"), clock=clock)
    later = clock.now() + 60

    broker.enqueue([a_job(clock, task="plain") for _ in range(20)])
    broker.enqueue([a_job(clock, key="ada", tags={"tenant": "a"}, run_at=later)])
    unique = [a_job(clock, unique=Unique("one")) for _ in range(2)]
    for job in unique:
        broker.enqueue([job])
    with psycopg.connect(broker.store.url) as connection:
        broker.enqueue([a_job(clock, task="joined")], connection=connection)
    flow = a_flow(clock, work=part(jobs=40), last=part("work"))
    flow.send(broker)

    assert broker.get(unique[0].id).state is State.READY
    assert broker.get(unique[1].id) is None
    assert flow.states(broker, "last") == [State.WAITING]
    broker.close()


def test_a_producer_fills_a_queue_from_a_program_of_its_own(store, logins):
    program = (
        "from penstock.tools.bench.tasks import nothing\n"
        "nothing.enqueue_many([(n, 'x') for n in range(2500)], id='import-7')\n"
        "nothing.enqueue(1, 'x')\n"
    )
    environment = {**os.environ, "PENSTOCK_URL": member(logins, "producer")}

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert sum(count.ready for count in store.count()) == 2502


def test_a_producer_neither_runs_nor_operates(store, logins, clock):
    broker = PostgresBroker(member(logins, "producer"), clock=clock)
    [job] = broker.find(parse_filter(["state:ready"], clock.now())).jobs

    for act in (
        lambda: claim(broker),
        lambda: broker.act("cancel", [job.id]),
        lambda: broker.act("delete", [job.id]),
        lambda: broker.put(Rule(RuleKind.PAUSE, queue="default")),
        lambda: broker.renew([WorkerRow(id="w", tasks={"send": 1})]),
        lambda: broker.prune(clock.now()),
    ):
        with pytest.raises(PenstockError, match="lacks a privilege"):
            act()

    assert store.get(job.id).state is State.READY
    broker.close()


def test_a_login_that_may_create_roles_and_no_more_sets_all_of_it_up(own_postgres, clock):
    """As the customer of a provider; on a server of its own, since roles belong to all of it."""
    logins = Logins(own_postgres.create_database())
    customer = logins.login()
    managed = logins.url_of(customer)
    with psycopg.connect(logins.url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("alter role {0} createrole; grant create on database {1} to {0}").format(
                sql.Identifier(customer), database
            )
        )
    migrate_store(managed, post=False)
    names = {role: logins.login() for role in ("viewer", "producer", "worker", "admin")}

    logins.grant_roles(managed, **{role: [name] for role, name in names.items()})
    logins.grant_roles(managed)  # once more takes nothing back

    urls = {role: logins.url_of(name) for role, name in names.items()}
    with psycopg.connect(managed) as connection:
        assert connection.execute(
            "select rolsuper, rolcreaterole from pg_roles where rolname = current_user"
        ).fetchone() == (False, True)
    producer, worker, admin, viewer = (
        PostgresBroker(urls[role], clock=clock)
        for role in ("producer", "worker", "admin", "viewer")
    )
    producer.enqueue([a_job(clock)])
    [job] = claim(worker)
    settle(worker, job, succeeded(b"1"))
    with pytest.raises(Refused, match="may not block"):
        worker.put(Rule(RuleKind.BLOCK, queue="mail"))
    admin.put(Rule(RuleKind.BLOCK, queue="mail", author="ada"))

    assert viewer.get(job.id).state is State.SUCCEEDED
    [event] = [event for event in viewer.history() if event.kind == "rule"]
    assert event.login == names["admin"]
    for broker in (producer, worker, admin, viewer):
        broker.close()
