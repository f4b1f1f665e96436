"""The audit is evidence: under the login of who wrote it, and changed by the owner alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors

from penstock.brokers.postgres import PostgresBroker, pruning
from penstock.job import failed
from penstock.operate.audit import AuditQuery, read_audit
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_flow, a_job, claim, part, settle
from tests.brokers.postgres.logins import Logins

DAY = 86400
EVIDENCE = "select kind, data, login from penstock.history where data is not null order by position"


class Worker:
    """A login for workers, and what was written under it: an attempt, and somebody's actions."""

    def __init__(self, logins: Logins, clock) -> None:
        PostgresBroker(logins.url, clock=clock).close()
        self.login = logins.login()
        logins.grant([self.login], [])
        self.url = logins.url_of(self.login)
        self.broker = PostgresBroker(self.url, clock=clock)
        jobs = [a_job(clock) for _ in range(2)]
        self.broker.enqueue(jobs)
        flow = a_flow(clock, first=part())
        flow.send(self.broker)
        self.broker.act("cancel", [jobs[0].id], "eve", "to hide something")
        self.broker.act("cancel", flow.ids("first"), "eve", "that as well")
        self.broker.put(Rule(RuleKind.PAUSE, queue="mail", author="eve", reason="so"))
        self.broker.audit("enqueue", "eve", "by hand", {"jobs": 1})
        [job] = claim(self.broker)
        settle(self.broker, job, failed("no"))

    def execute(self, statement: str) -> int:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).rowcount


@pytest.fixture
def worker(logins: Logins, clock) -> Iterator[Worker]:
    made = Worker(logins, clock)
    yield made
    made.broker.close()


def evidence(url: str) -> list[tuple[str, dict[str, object], str]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(EVIDENCE).fetchall()
    decoded = [(kind, json.loads(data), login) for kind, data, login in rows]
    return [row for row in decoded if "author" in row[1]]


def test_every_action_has_the_login_that_wrote_it_beside_its_author(worker: Worker, logins):
    rows = evidence(logins.url)

    assert {kind for kind, _, _ in rows} >= {"cancel", "rule", "enqueue"}
    assert {(data["author"], login) for _, data, login in rows} == {("eve", worker.login)}
    entries = read_audit(worker.broker, AuditQuery()).entries
    assert {(entry.author, entry.login) for entry in entries} == {("eve", worker.login)}


@pytest.mark.parametrize(
    "statement",
    [
        "delete from penstock.history",
        "delete from penstock.history where kind <> 'attempt'",
        "update penstock.history set body = 'x', result = 'x'",
        "delete from penstock.{part}",
        "update penstock.{part} set body = 'x'",
    ],
)
def test_a_worker_deletes_and_changes_none_of_it(worker: Worker, logins, statement):
    before = evidence(logins.url)
    with psycopg.connect(logins.url) as connection:
        [(part_of,)] = connection.execute(
            "select distinct tableoid::regclass::text from penstock.history"
        ).fetchall()

    worker.execute(statement.format(part=part_of.removeprefix("penstock.")))

    assert evidence(logins.url) == before
    with psycopg.connect(logins.url) as connection:
        [(touched,)] = connection.execute(
            "select count(*) from penstock.history"
            " where penstock.is_evidence(kind, data) and (body is not null or result is not null)"
        ).fetchall()
    assert touched == 0


@pytest.mark.parametrize(
    "statement",
    [
        "update penstock.history set data = '{}'",
        "update penstock.history set login = 'ada'",
        "update penstock.history set kind = 'attempt'",
        "truncate penstock.history",
        "alter table penstock.history disable row level security",
        "drop policy history_prune on penstock.history",
        "select penstock.make_day(1), set_config('role', 'penstock_admin', false)",
        (
            "create or replace function penstock.is_evidence(p_kind text, p_data bytea)"
            " returns boolean language sql as 'select false'"
        ),
    ],
)
def test_a_worker_has_no_right_to_any_way_around_it(worker: Worker, logins, statement):
    before = evidence(logins.url)

    with pytest.raises(errors.InsufficientPrivilege):
        worker.execute(statement)

    assert evidence(logins.url) == before


@pytest.mark.parametrize("login", ["'ada'", "null", "current_user || ' '"])
def test_nobody_writes_under_the_login_of_another(worker: Worker, login):
    with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
        worker.execute(
            "insert into penstock.history (kind, at, data, login) values"
            f' (\'rule\', 0, \'{{"author":"ada","reason":""}}\', {login})'
        )


def test_a_worker_prunes_all_but_the_evidence_however_much_there_is(
    worker: Worker, logins, clock, monkeypatch
):
    monkeypatch.setattr(pruning, "PAGE_ROWS", 2)
    before = evidence(logins.url)
    assert len(before) > 2
    clock.advance(seconds=40 * DAY)

    worker.broker.prune(clock.now() - 30 * DAY)

    assert evidence(logins.url) == before
    with psycopg.connect(logins.url) as connection:
        rows = connection.execute("select kind, data from penstock.history").fetchall()
    assert "attempt" not in {kind for kind, _ in rows}


def test_evidence_of_400_days_ago_is_pruned_and_nothing_younger(worker: Worker, logins, clock):
    worker.execute(
        "insert into penstock.history (kind, at, data, login)"
        " select 'rule', extract(epoch from now()) - days * 86400,"
        "        convert_to('{\"author\":\"' || days || '\"}', 'UTF8'), session_user"
        " from unnest(array[399, 401]) as days"
    )

    rows = worker.execute("select penstock.prune_evidence('infinity', 9223372036854775807)")

    assert rows == 1
    authors = {data["author"] for _, data, _ in evidence(logins.url)}
    assert "399" in authors
    assert "401" not in authors


def test_the_owner_prunes_the_evidence_with_the_rest(worker: Worker, logins, clock):
    owner = PostgresBroker(logins.url, clock=clock)
    clock.advance(seconds=40 * DAY)

    owner.prune(clock.now() - 30 * DAY)

    assert evidence(logins.url) == []
    owner.close()
