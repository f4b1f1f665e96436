"""The history checker: each invariant is broken on purpose; real stores contradict nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from penstock import App, Retry, State
from penstock.broker.views import Event
from penstock.flows.flow import FlowRow, NodeRow
from penstock.job import Job
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.checker import Checker, check_store, most_at_once, most_in_window
from tests.workers import drain


def row(kind: str = "attempt", at: float = 10.0, **fields: Any) -> Event:
    data = fields.pop("data", None)
    defaults: dict[str, Any] = {}
    if kind == "attempt":
        defaults = {
            "job": "a",
            "attempt": 1,
            "state": State.SUCCEEDED,
            "queue": "mail",
            "task": "send",
            "worker": "w",
            "started_at": at - 1,
        }
    encoded = None if data is None else msgspec.json.encode(data)
    return Event(position="0", kind=kind, at=at, data=encoded, **(defaults | fields))


def found(*events: Event, tolerance: float = 0.0) -> list[str]:
    checker = Checker(tolerance)
    for event in events:
        checker.read(event)
    checker.finish()
    return [each.invariant for each in checker.contradictions]


READY = State.READY


def version(job: str = "a", **fields: Any) -> Event:
    """The row of a job that says it made, or found, a version of a partition."""
    made: dict[str, Any] = {
        "type": "made",
        "dataset": "rides",
        "partition": "2026-01-05",
        "run": "1-x.0",
        "job": job,
        "attempt": 1,
        "rows": 3,
        "bytes": 9,
        "inputs": [],
    }
    at = fields.pop("at", 10.0)
    by = fields.pop("by", job)
    return row(at=at, job=by, result=msgspec.json.encode(made | fields))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([version(), version("b", at=20)], ["datasets"]),
        ([version(), version("a", at=20, by="b", found=True, rows=4)], ["datasets"]),
        ([version(by="b")], ["datasets"]),
        ([version(), version("a", at=20, by="b", found=True)], []),
        ([version(), version("b", at=20, run="1-x.1"), version("c", partition="p", at=30)], []),
        ([row(result=b'{"type":"made"}')], []),
    ],
    ids=["made twice", "other rows", "another's", "found", "other versions", "no version"],
)
def test_a_version_of_a_partition_is_made_once(events: Sequence[Event], expected: list[str]):
    assert found(*events) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([row(), row(at=20, attempt=2)], ["ended once"]),
        ([row(state=READY, reason="error"), row(at=20)], ["fence"]),
        ([row(state=READY), row(at=20, attempt=2, started_at=9.0)], ["overlap"]),
        ([row(state=READY), row(at=20, attempt=2, failures=2)], ["counters"]),
        ([row(state=READY), row(at=20, attempt=2, failures=1, lapses=1)], ["counters"]),
        ([row(state=READY, failures=1), row(at=20, attempt=2, failures=0)], ["counters"]),
    ],
    ids=["settled twice", "stale attempt", "overlap", "two failures", "both", "fewer"],
)
def test_a_job_s_rows_that_cannot_follow_each_other(events: Sequence[Event], expected: list[str]):
    assert found(*events) == expected


def test_a_retry_a_put_back_and_a_lapse_explain_what_follows():
    assert not found(
        row(state=State.FAILED, failures=1, reason="error"),
        row("retry", at=11, job="a", attempt=1, state=READY),
        row(at=20, attempt=4, state=READY, lapses=1, reason="crashed"),
        row(at=30, attempt=5, lapses=1),
    )


def test_the_retry_of_a_flow_excuses_none_but_the_jobs_that_have_a_row_of_it():
    retry = row("flow", at=15, job="f", data={"says": "retry", "jobs": 1})
    assert found(row(), retry, row(at=20, attempt=2)) == ["ended once"]
    own = row("retry", at=15, job="a", attempt=1, state=READY)
    assert not found(row(), own, retry, row(at=20, attempt=2))


def test_an_attempt_after_a_cancel():
    assert found(row("cancel", job="a", attempt=0, state=State.CANCELLED), row(at=20)) == [
        "ended once"
    ]
    running = row("cancel", job="a", attempt=1, state=State.RUNNING)
    assert not found(running, row(at=20, attempt=1, started_at=1.0, state=State.CANCELLED))


def limit(at: float = 0.0, *, on: bool = True, **numbers: Any) -> Event:
    data = {"id": "r", "kind": "limit", "queue": "mail", "task": None, "set": on, **numbers}
    return row("rule", at=at, data=data)


def starts(*times: float, **fields: Any) -> list[Event]:
    return [
        row(at=at + 1, started_at=at, job=f"job {number}", **fields)
        for number, at in enumerate(times)
    ]


def test_more_run_than_a_limit_allows_while_it_is_in_force():
    assert found(limit(running=2), *starts(1, 1.2, 1.4)) == ["running limit"]
    assert not found(limit(running=3), *starts(1, 1.2, 1.4))
    assert not found(limit(running=2), *starts(1, 1.2, 1.4, queue="other"))
    assert not found(limit(running=2), limit(0.5, on=False), *starts(1, 1.2, 1.4))
    assert not found(limit(running=2, until=0.9), *starts(1, 1.2, 1.4))
    assert found(limit(running=2), *starts(1, 1.2, 1.4), limit(9, on=False)) == ["running limit"]


def test_a_limit_per_key_counts_each_key():
    one_each = [*starts(1, key="ada"), row(job="b", at=2.2, started_at=1.2, key="bob")]
    keyless = [row(job="c", at=2.3), row(job="d", at=2.4)]
    assert not found(limit(running=1, per_key=True), *one_each, *keyless)
    assert found(limit(running=1, per_key=True), *starts(1, 1.2, key="ada")) == ["running limit"]


def test_more_start_in_a_window_than_a_rate_allows():
    assert found(limit(rate=[2, 1.0]), *starts(1, 1.5, 1.9)) == ["rate limit"]
    assert not found(limit(rate=[2, 1.0]), *starts(1, 1.5, 2.0))


def test_a_slot_that_is_decided_twice():
    slot = {"schedule": "hourly", "slot": "2026-11-18T00:00:00Z", "says": "enqueued"}
    assert found(row("schedule", data=slot), row("schedule", data=slot)) == ["slots"]
    assert not found(row("schedule", data=slot), row("schedule", data={**slot, "slot": "later"}))


def test_a_flow_that_ends_twice():
    ended = row("flow", job="f", data={"says": "ended", "jobs": 1})
    retry = row("flow", job="f", data={"says": "retry", "jobs": 1})
    assert found(ended, ended) == ["flows"]
    assert not found(ended, retry, ended)


def node(name: str, **fields: Any) -> NodeRow:
    return NodeRow(id=name, flow="f", task="send", jobs=2, **fields)


@pytest.mark.parametrize(
    ("nodes", "ended_at"),
    [
        ([node("a"), node("b", needs=("a",), needs_left=1, jobs_left=2)], None),  # hangs
        ([node("a", jobs_left=1)], 5.0),  # ended too soon
        ([node("a")], None),  # never ended
        ([node("a", jobs_left=3)], None),  # counted too often, or not at all
    ],
)
def test_a_flow_whose_counts_cannot_be(nodes: list[NodeRow], ended_at: float | None):
    checker = Checker()
    checker.live_flow(FlowRow(id="f", nodes=tuple(nodes), ended_at=ended_at))
    assert [each.invariant for each in checker.contradictions] == ["flows"]


def test_a_job_that_is_open_in_the_store_and_ended_in_its_history():
    checker = Checker()
    checker.read(row())
    checker.live_job(Job(id="a", task="send", state=READY, attempt=1))
    checker.read(row(job="b", state=READY, attempt=2))
    checker.live_job(Job(id="b", task="send", state=READY, attempt=1))
    assert [each.invariant for each in checker.contradictions] == ["ended once", "fence"]


def test_an_accepted_job_that_is_nowhere():
    checker = Checker()
    checker.read(row())
    checker.read(row("delete", job="b"))
    checker.accepted(["a", "b", "c", "d"], live={"c"})
    assert [each.subject for each in checker.contradictions] == ["d"]


def test_the_fullest_instant_and_the_fullest_window():
    assert most_at_once([(0, 2), (1, 3), (2, 4)]) == 2  # an end goes before a start
    assert most_at_once([(0, 2.01), (2, 4)], tolerance=0.02) == 1
    assert most_in_window([0, 0.4, 0.9, 1.0], 1.0) == 3


def test_a_store_s_own_history_contradicts_nothing(store_app: App):
    """On every store: retries, failures, a flow, a cancel, a limit."""
    app = store_app

    @app.task(name="add")
    def add(left: int, right: int) -> int:
        return left + right

    @app.task(name="fail", retry=Retry(limit=1, delay=0))
    def fail() -> None:
        raise ValueError

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    app.broker.put(Rule(RuleKind.LIMIT, queue="default", running=3))
    failing = fail.enqueue()
    cancelled = add.options(delay=1000).enqueue(1, 2)
    sums = total.job(add.map([1, 2, 3], right=1).output).enqueue()
    cancelled.cancel()
    drain(app)
    app.broker.act("retry", [failing.id])
    drain(app)

    verdict = check_store(app.broker, [failing.id, cancelled.id, sums.id], tolerance=0.02)

    assert verdict.ok, verdict
    assert verdict.seen["attempts"] >= 8
    assert verdict.seen["retries"] == verdict.seen["flows"] == verdict.seen["limits"] == 1


@pytest.mark.parametrize("by", ["flow", "job"])
def test_a_flow_that_was_retried_contradicts_nothing(store_app: App, by: str):
    """Every job that runs again because of it has a row that says so."""
    app, broken = store_app, [True]

    @app.task(name="fetch")
    def fetch() -> int:
        if broken:
            raise ValueError
        return 1

    @app.task(name="pass_on")
    def pass_on(number: int) -> int:
        return number

    first = fetch.job()
    last = pass_on.job(pass_on.job(first.output).output).enqueue()
    drain(app)
    broken.clear()
    if by == "flow":
        app.broker.act("retry", flow=app.broker.flows().flows[0].id)
    else:
        app.broker.act("retry", [first.id])
    drain(app)

    verdict = check_store(app.broker, [first.id, last.id], tolerance=0.02)

    assert verdict.ok, verdict
    assert verdict.seen["retries"] == 3
    assert last.result(timeout=10) == 1


def test_a_lost_job_is_named(store_app: App):
    lost = "01a1ec0d-701c-7400-bf63-f671fa0a9000"
    verdict = check_store(store_app.broker, [lost])
    assert [(each.invariant, each.subject) for each in verdict.contradictions] == [
        ("accepted", lost)
    ]
    assert lost in str(verdict)
