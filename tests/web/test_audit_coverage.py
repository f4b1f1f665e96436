"""Who did what: every route and every command that changes something leaves one entry.

An entry says who, what, why and how many. A route that is added has to say here how it is used, or
that it changes nothing that is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import pytest

from penstock import App, wait_for
from penstock.app.clock import SYSTEM_CLOCK
from penstock.broker.lake_mark import Mark
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import Options, QueueOptions
from penstock.broker.views import WorkerRow
from penstock.broker.worker_settings import WorkerSettings
from penstock.brokers import open_broker
from penstock.job import State, failed
from penstock.operate.audit import AuditEntry, AuditQuery, read_audit
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_schedule,
    claim,
    claim_for,
    part,
    settle,
)
from penstock.web.access import Role
from penstock.web.routes import ROUTES
from tests.web.conftest import Web
from tests.web.test_operations import ended

WHY = "because of the flood"
V1 = "/api/v1"
# An entry each: a pause, the jobs, the rules and the options; a limit, and the jobs.
SEVERAL = {"drop queue", "run datasets", "run dataset form"}
# Who comes and goes, and whoever has the store examined, changes nothing that it keeps.
NOTHING = {"enter", "leave", "examine", "doctor", "test alert"}


class Place(NamedTuple):
    """A store with an app, behind a dashboard."""

    web: Web
    app: App
    broker: Broker


class Audited(NamedTuple):
    """What is sent, and the entry that it leaves."""

    send: Callable[[Place], tuple[str, dict[str, Any]]]
    kind: str
    jobs: int | None = None  # how many the entry says; None: it names the one thing itself
    why: str = WHY


def a_ready_job(place: Place) -> str:
    job = a_job(SYSTEM_CLOCK)
    place.broker.enqueue([job])
    return job.id


def a_failed_job(place: Place) -> str:
    id = a_ready_job(place)
    [job] = claim(place.broker)
    assert job.id == id
    settle(place.broker, job, failed("no"))
    return id


def a_whole_flow(place: Place, *, bad: bool = False) -> str:
    flow = a_flow(SYSTEM_CLOCK, first=part(), last=part("first"))
    flow.send(place.broker)
    if bad:
        [job] = claim(place.broker)
        settle(place.broker, job, failed("no"))
    return flow.flow.id


def a_rule(place: Place, kind: RuleKind, **fields: Any) -> dict[str, Any]:
    place.broker.put(Rule(kind, "mail", None, "before", **fields))
    return {"queue": "mail", "reason": WHY}


def an_override(place: Place) -> dict[str, Any]:
    place.broker.put(QueueOptions(queue="mail", override=Options(timeout=5.0)), "before")
    return MAIL


def a_set_worker(place: Place) -> dict[str, Any]:
    place.broker.put(WorkerSettings(worker="w", threads=5), "before")
    return {"worker": "w", "reason": WHY}


def a_subscriber(place: Place) -> dict[str, Any]:
    place.app.topics.put(place.app.tasks["shop:report"], "order.*", name="reports")
    return {"name": "reports", "reason": WHY}


def a_publication(place: Place) -> dict[str, Any]:
    a_subscriber(place)
    return {"topic": "order.paid", "value": "2026-01-01", "reason": WHY}


def a_plan(place: Place, *, paused: bool = False) -> dict[str, Any]:
    place.broker.put(a_schedule("nightly"), "before")
    if paused:
        place.app.schedules.pause("nightly", "before")
    return {"name": "nightly", "reason": WHY}


def a_wait(place: Place) -> dict[str, Any]:
    place.app.enqueue([wait_for("go"), wait_for("go")])
    return {"name": "go", "reason": WHY}


def a_lake(place: Place) -> dict[str, Any]:
    place.broker.put(Mark(lake="lake-1", place="/lakes/one"))
    return {"lake": "lake-1", "reason": WHY}


def some_days(place: Place, *, bad: int = 0) -> dict[str, Any]:
    report = place.app.tasks["shop:report"]
    report.backfill("2026-01-01", "2026-01-03", max_running=None)
    worker = WorkerRow(id="w", tasks={"shop:report": 1})
    for job in claim_for(place.broker, worker, limit=bad):
        place.broker.settle([(job, failed("no data"))])
    return {"task": "shop:report", "first": "2026-01-01", "last": "2026-01-03", "reason": WHY}


def failures(place: Place, verb: str = "retry") -> dict[str, Any]:
    for _ in range(3):
        a_failed_job(place)
    return {"verb": verb, "filter": "state:failed", "q": "state:failed", "reason": WHY}


def under_way(place: Place) -> str:
    """An operation that cannot end by itself while the test looks: its page is held up."""
    failures(place)
    act, held = place.broker.act, threading.Event()

    def slowly(action: Any, ids: Sequence[str] = (), *args: Any, **named: Any) -> list[str]:
        if ids and action == "retry":  # without any it is only asked whether it may
            held.wait()
        return act(action, ids, *args, **named)

    place.broker.act = slowly  # pyright: ignore[reportAttributeAccessIssue]
    client = place.web.client(Role.OPERATE)
    begun = client.post(f"{V1}/operations", json={"verb": "retry", "filter": "state:failed"})
    HELD.append(held)
    return begun.json()["id"]


HELD: list[threading.Event] = []


def job_at(
    path: str, made: Callable[[Place], str]
) -> Callable[[Place], tuple[str, dict[str, Any]]]:
    return lambda place: (path.replace("{id}", made(place)), {"reason": WHY})


def to(path: str, made: Callable[[Place], dict[str, Any]]) -> Any:
    return lambda place: (path, made(place))


def bad_flow(place: Place) -> str:
    return a_whole_flow(place, bad=True)


def chosen(
    verb: str, made: Callable[[Place], str]
) -> Callable[[Place], tuple[str, dict[str, Any]]]:
    return lambda place: (f"/jobs/chosen/{verb}", {"id": made(place), "reason": WHY})


def rest_ids(path: str, made: Callable[[Place], str]) -> Any:
    return lambda place: (f"{V1}{path}", {"ids": [made(place)], "reason": WHY})


PAUSE, BLOCK, LIMIT, ORDER = RuleKind.PAUSE, RuleKind.BLOCK, RuleKind.LIMIT, RuleKind.ORDER
MAIL = {"queue": "mail", "reason": WHY}
ROUTE: dict[str, Audited] = {
    "enqueue job": Audited(
        to(
            "/jobs/new",
            lambda _: {"task": "shop:report", "arg.day": "2026-01-01", "reason": WHY},
        ),
        "enqueue",
        1,
    ),
    "cancel job": Audited(job_at("/jobs/{id}/cancel", a_ready_job), "cancel"),
    "retry job": Audited(job_at("/jobs/{id}/retry", a_failed_job), "retry"),
    "copy job": Audited(job_at("/jobs/{id}/copy", a_failed_job), "enqueue", 1),
    "delete job": Audited(job_at("/jobs/{id}/delete", a_ready_job), "delete"),
    "cancel chosen jobs": Audited(chosen("cancel", a_ready_job), "cancel"),
    "retry chosen jobs": Audited(chosen("retry", a_failed_job), "retry"),
    "delete chosen jobs": Audited(chosen("delete", a_ready_job), "delete"),
    "cancel flow form": Audited(job_at("/flows/{id}/cancel", a_whole_flow), "flow", 2),
    "retry flow form": Audited(job_at("/flows/{id}/retry", bad_flow), "flow", 2),
    "delete flow form": Audited(job_at("/flows/{id}/delete", a_whole_flow), "flow", 2),
    "pause form": Audited(to("/rules/pause", lambda _: MAIL), "rule"),
    "resume form": Audited(to("/rules/resume", lambda place: a_rule(place, PAUSE)), "rule"),
    "block form": Audited(to("/rules/block", lambda _: MAIL), "rule"),
    "unblock form": Audited(to("/rules/unblock", lambda place: a_rule(place, BLOCK)), "rule"),
    "limit form": Audited(to("/rules/limit", lambda _: {**MAIL, "running": 3}), "rule"),
    "limit off form": Audited(
        to("/rules/limit-off", lambda place: a_rule(place, LIMIT, running=3)), "rule"
    ),
    "order form": Audited(to("/rules/order", lambda _: {**MAIL, "policy": "fair"}), "rule"),
    "order off form": Audited(
        to("/rules/order-off", lambda place: a_rule(place, ORDER, policy="fair")), "rule"
    ),
    "set queue form": Audited(
        to("/queues/set", lambda _: {**MAIL, "options": "timeout=5s"}), "queue"
    ),
    "reset queue form": Audited(to("/queues/reset", an_override), "queue"),
    "set worker form": Audited(
        to("/workers/set", lambda _: {"worker": "w", "threads": "5", "reason": WHY}), "worker"
    ),
    "reset worker form": Audited(to("/workers/reset", a_set_worker), "worker"),
    "pause schedule form": Audited(to("/schedules/pause", a_plan), "schedule"),
    "resume schedule form": Audited(
        to("/schedules/resume", lambda place: a_plan(place, paused=True)), "schedule"
    ),
    "run schedule form": Audited(to("/schedules/run", a_plan), "schedule"),
    "remove schedule form": Audited(to("/schedules/remove", a_plan), "schedule"),
    "retry backfill form": Audited(
        to("/backfills/retry", lambda place: some_days(place, bad=1)), "retry"
    ),
    "backfill form": Audited(
        to("/backfills/again", lambda place: some_days(place, bad=1)), "backfill", 3
    ),
    "begin": Audited(to("/operations", failures), "operation", 3),
    "stop": Audited(
        lambda place: (f"/operations/{under_way(place)}/cancel", {}), "operation", why=""
    ),
    "enqueue": Audited(
        to(
            f"{V1}/jobs",
            lambda _: {"task": "shop:report", "args": {"day": "2026-01-01"}, "reason": WHY},
        ),
        "enqueue",
        1,
    ),
    "cancel": Audited(rest_ids("/cancel", a_ready_job), "cancel"),
    "retry": Audited(rest_ids("/retry", a_failed_job), "retry"),
    "copy": Audited(job_at(f"{V1}/jobs/{{id}}/copy", a_failed_job), "enqueue", 1),
    "delete": Audited(rest_ids("/delete", a_ready_job), "delete"),
    "signal": Audited(to(f"{V1}/signal", a_wait), "signal", 2),
    "pause": Audited(to(f"{V1}/pause", lambda _: MAIL), "rule"),
    "resume": Audited(to(f"{V1}/resume", lambda place: a_rule(place, PAUSE)), "rule"),
    "block": Audited(to(f"{V1}/block", lambda _: MAIL), "rule"),
    "unblock": Audited(to(f"{V1}/unblock", lambda place: a_rule(place, BLOCK)), "rule"),
    "limit": Audited(to(f"{V1}/limit", lambda _: {**MAIL, "running": 3}), "rule"),
    "order": Audited(to(f"{V1}/order", lambda _: {**MAIL, "policy": "wait"}), "rule"),
    "set queue": Audited(
        to(f"{V1}/queues/set", lambda _: {**MAIL, "options": {"timeout": "5s"}}), "queue"
    ),
    "reset queue": Audited(to(f"{V1}/queues/reset", an_override), "queue"),
    "set worker": Audited(
        to(f"{V1}/workers/set", lambda _: {"worker": "w", "threads": 5, "reason": WHY}), "worker"
    ),
    "reset worker": Audited(to(f"{V1}/workers/reset", a_set_worker), "worker"),
    "publish": Audited(to(f"{V1}/topics/publish", a_publication), "enqueue", 1),
    "unsubscribe": Audited(to(f"{V1}/topics/unsubscribe", a_subscriber), "subscription"),
    "put schedule": Audited(
        to(
            f"{V1}/schedules",
            lambda _: {"name": "n", "task": "shop:tick", "every": 60, "reason": WHY},
        ),
        "schedule",
    ),
    "pause schedule": Audited(to(f"{V1}/schedules/pause", a_plan), "schedule"),
    "resume schedule": Audited(
        to(f"{V1}/schedules/resume", lambda place: a_plan(place, paused=True)), "schedule"
    ),
    "run schedule": Audited(to(f"{V1}/schedules/run", a_plan), "schedule"),
    "remove schedule": Audited(to(f"{V1}/schedules/remove", a_plan), "schedule"),
    "backfill": Audited(
        to(f"{V1}/backfills", lambda place: some_days(place, bad=1)), "backfill", 3
    ),
    "forget lake": Audited(to(f"{V1}/lakes/forget", a_lake), "lake"),
    "begin operation": Audited(
        to(
            f"{V1}/operations",
            lambda place: {name: value for name, value in failures(place).items() if name != "q"},
        ),
        "operation",
        3,
    ),
    "cancel operation": Audited(
        lambda place: (f"{V1}/operations/{under_way(place)}/cancel", {}), "operation", why=""
    ),
}


def with_tasks(serve, app: App) -> Iterator[Place]:
    @app.task(name="shop:report")
    def report(day: date) -> None: ...

    @app.task(name="shop:tick")
    def tick(slot: datetime) -> None: ...

    yield Place(serve(app), app, app.broker)
    while HELD:
        HELD.pop().set()


@pytest.fixture
def place(serve, store_app: App) -> Iterator[Place]:
    """Each store in turn."""
    yield from with_tasks(serve, store_app)


@pytest.fixture
def memory_place(serve) -> Iterator[Place]:
    """For pages, which have the same verbs to act with as REST has."""
    broker = open_broker("memory:")
    yield from with_tasks(serve, App(broker=broker))
    broker.close()


OVER_REST = {route.name for route in ROUTES if route.path.startswith(V1)}


def deeds(broker: Broker) -> list[AuditEntry]:
    """But for logins, which tests/web/test_audit_logins.py is about."""
    entries = read_audit(broker, AuditQuery(), None, 1000).entries
    return [entry for entry in entries if entry.kind != "login"]


def test_every_route_that_changes_something_is_among_these():
    changing = {route.name for route in ROUTES if route.method == "POST"}

    assert changing - NOTHING - SEVERAL == set(ROUTE)


@pytest.mark.parametrize("name", [name for name in ROUTE if name in OVER_REST])
def test_a_call_that_changes_something_leaves_one_entry(place: Place, name):
    path, body = ROUTE[name].send(place)
    before = {deed.position for deed in deeds(place.broker)}

    client = place.web.client(Role.ADMIN)

    answer = client.post(path, json=body)

    assert answer.status_code == 200, answer.text
    if name == "begin operation":
        ended(client, answer.json()["id"])
    check(place, before, ROUTE[name])


@pytest.mark.parametrize("name", [name for name in ROUTE if name not in OVER_REST])
def test_a_form_that_changes_something_leaves_one_entry(memory_place: Place, name):
    path, body = ROUTE[name].send(memory_place)
    before = {deed.position for deed in deeds(memory_place.broker)}

    client = memory_place.web.browser(Role.ADMIN)

    answer = client.post(path, data=body)

    assert answer.status_code == 303, answer.text
    if name == "begin":
        ended(client, answer.headers["location"].rpartition("/")[2])
    check(memory_place, before, ROUTE[name])


def check(place: Place, before: set[int], expected: Audited) -> None:
    [deed] = [deed for deed in deeds(place.broker) if deed.position not in before]
    assert (deed.author, deed.kind, deed.reason) == ("ada", expected.kind, expected.why)
    assert deed.says.get("jobs") == expected.jobs
    assert deed.job or deed.queue or deed.says


def test_a_retry_of_all_that_match_is_one_entry_and_every_job_knows_of_it(place: Place):
    failures(place)
    client = place.web.client(Role.OPERATE)

    body = {"verb": "retry", "filter": "state:failed", "reason": WHY}
    begun = client.post(f"{V1}/operations", json=body).json()
    ended(client, begun["id"])

    [deed] = [deed for deed in deeds(place.broker) if deed.author == "otto"]
    assert deed.says == {
        "operation": begun["id"],
        "verb": "retry",
        "filter": "state:failed",
        "jobs": 3,
        "state": "done",
    }
    rows = [row for row in place.broker.history(limit=1000) if row.kind == "retry"]
    assert len({row.job for row in rows}) == 3
    assert all(begun["id"].encode() in (row.data or b"") for row in rows)
    assert all(row.state is State.READY for row in rows)


def test_the_entry_of_many_jobs_comes_before_all_that_it_is_about(memory_place: Place):
    broker = memory_place.broker
    ids = [a_failed_job(memory_place) for _ in range(40)]
    broker.act("retry", ids, "otto", WHY, part_of="operation X")

    running = read_audit(broker, AuditQuery(), None, 10, 20)
    broker.audit("operation", "otto", WHY, {"operation": "X", "verb": "retry", "jobs": 40})
    ended = read_audit(broker, AuditQuery(), None, 10, 20)

    assert len(running.entries) == 10  # under way, or killed: each job tells for itself
    assert [deed.says["jobs"] for deed in ended.entries] == [40]
    assert (ended.looked, ended.before is not None) == (20, True)
    assert read_audit(broker, AuditQuery(), ended.before, 10).entries == []


def test_what_changes_nothing_leaves_no_entry(place: Place):
    client, id = place.web.client(Role.OPERATE), a_ready_job(place)
    before = deeds(place.broker)

    assert client.post(f"{V1}/retry", json={"ids": [id]}).json()["left"] == [id]
    assert client.post(f"{V1}/signal", json={"name": "go"}).json() == {"done": []}
    assert client.post(f"{V1}/resume", json=MAIL).json() == {"cleared": False}
    assert client.post(f"{V1}/pause", json={**MAIL, "dry_run": True}).json()["jobs"] == 0
    assert client.post(f"{V1}/lakes/forget", json={"lake": "x"}).json() == {"forgotten": False}

    assert deeds(place.broker) == before


def test_a_job_that_was_sent_before_is_not_told_again(place: Place):
    client = place.web.client(Role.OPERATE)
    body = {"task": "shop:report", "args": {"day": "2026-01-01"}, "id": place.app.ids.first()}

    answers = [client.post(f"{V1}/jobs", json=body).json() for _ in range(2)]

    assert answers == [{"id": body["id"]}] * 2
    [deed] = deeds(place.broker)
    assert (deed.kind, deed.job, deed.task) == ("enqueue", body["id"], "shop:report")
