"""A worker starts jobs when they are due: it knows the time from its claims, and polls for nothing.

It never polls in these tests, and its chores do not wake it: a time that it ignores, or does not
wait for, passes unnoticed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App, Retry, RetryLater, State
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.job import put_back
from penstock.rules.rule import Rule, RuleKind
from penstock.worker.claim_plan import RequestKind
from tests.workers import SOON, working

NEVER = 3600.0
LEASE = 3 * NEVER  # it is renewed every third: the worker's own writes are hints, too


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path / 'jobs.db'}" if request.param == "sqlite" else "memory:"


@pytest.fixture
def app(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setattr("penstock.worker.claim_plan._POLL_FIRST", NEVER)
    # Upkeep wakes the loop, which then sees what fell due meanwhile, up to 1.5 s late.
    monkeypatch.setattr("penstock.worker.upkeep.RECOVER_SECONDS", NEVER)
    # Nor is a notification left out because another was sent a moment ago.
    monkeypatch.setattr("penstock.brokers.postgres.store.NOTIFY_SECONDS", 0.0)
    app = App(url)
    app.broker.traits.poll_seconds = lambda: NEVER
    yield app
    app.close()


every_store = pytest.mark.parametrize("url", ["memory:", "sqlite", "postgres"], indirect=True)


def started_at(app: App, job_id: str) -> list[float]:
    events = app.broker.history(job=job_id)
    return [event.started_at or 0.0 for event in events if event.kind == "attempt"]


@every_store
def test_jobs_with_a_time_start_then_and_not_before(app):
    @app.task
    def remind(n: int) -> int:
        return n

    handles = [remind.options(delay=delay).enqueue(n) for n, delay in enumerate((1.5, 0.8, 1.1))]
    due = [app.broker.get(handle.id).run_at for handle in handles]

    with working(app, lease=LEASE):
        assert [handle.result(timeout=SOON) for handle in handles] == [0, 1, 2]

    for handle, run_at in zip(handles, due, strict=True):
        [started] = started_at(app, handle.id)
        assert started >= run_at - 0.01


@every_store
def test_a_backlog_is_worked_off_without_a_single_poll(app):
    """V54: whoever was handed jobs asks for more at once; no hint is left of those that wait."""

    @app.task
    def count(n: int) -> int:
        return n

    handles = app.enqueue([count.job(n) for n in range(3000)])

    with working(app, lease=LEASE):
        assert [handle.result(timeout=60) for handle in handles[::100]] == [*range(0, 3000, 100)]


@every_store
def test_a_job_that_is_stored_while_the_worker_waits_for_a_later_one(app, url):
    @app.task(name="remind")
    def remind() -> None: ...

    with working(app, lease=LEASE):
        remind.options(delay=NEVER).enqueue()
        remind.enqueue().result(timeout=SOON)  # by now it knows of the later one
        remind.options(delay=0.5).enqueue().result(timeout=SOON)


@every_store
def test_an_attempt_that_is_put_off_is_made_when_it_is_due(app):
    attempts: list[str] = []

    @app.task
    def later() -> None:
        attempts.append("later")
        if len(attempts) == 1:
            raise RetryLater(after=0.5)

    with working(app, lease=LEASE, threads=1):
        later.enqueue().result(timeout=SOON)

    assert len(attempts) == 2


@every_store
def test_a_retry_is_made_when_it_is_due_beside_a_job_that_runs_on(app):
    free, attempts = threading.Event(), [0]

    @app.task
    def long() -> None:
        free.wait(SOON)

    @app.task(retry=Retry(limit=1, delay=0.5, jitter=0))
    def flaky() -> None:
        attempts[0] += 1
        if attempts[0] == 1:
            raise ValueError

    with working(app, lease=LEASE, threads=2):
        running = long.enqueue()
        flaky.enqueue().result(timeout=SOON)
        free.set()
        running.result(timeout=SOON)


@every_store
def test_what_a_pause_held_back_starts_when_it_ends(app):
    @app.task
    def mail() -> None: ...

    app.broker.put(Rule(RuleKind.PAUSE, queue="default", until=app.broker.clock.now() + 1.0))
    handle = mail.enqueue()

    with working(app, lease=LEASE):
        handle.result(timeout=SOON)


@every_store
def test_what_a_rate_limit_held_back_starts_when_there_is_room(app):
    @app.task
    def mail() -> None: ...

    app.broker.put(Rule(RuleKind.LIMIT, queue="default", rate=(1, 0.5)))
    handles = [mail.enqueue() for _ in range(3)]

    with working(app, lease=LEASE):
        for handle in handles:
            handle.result(timeout=SOON)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_worker_knows_when_a_job_that_another_one_put_back_is_due(app, url):
    """Whoever ran it may have no room any more."""
    other = App(url)

    @app.task(name="mail:send")
    def send() -> None: ...

    handle = send.enqueue()
    row = WorkerRow(id="other", tasks={"mail:send": 1})
    [[job]] = other.broker.claim([Wanted(row)]).jobs
    with working(app, lease=LEASE):
        time_then = other.broker.clock.now() + 0.5
        idle = WorkerRow(id="other", tasks={"no:task": 1})
        other.broker.claim([Wanted(idle)], [(job, put_back("later", time_then))])
        handle.result(timeout=SOON)
    other.close()

    assert handle.state() is State.SUCCEEDED


def test_a_worker_polls_more_and_more_rarely_until_it_finds_a_job():
    kind, pauses = RequestKind("hands"), list[float]()
    for _ in range(8):
        kind.record_answer(100.0, taken=0, limit=5, longest_poll=2.0)
        pauses.append(kind.due_at - 100.0)

    assert pauses == sorted(pauses)
    assert pauses[0] == pytest.approx(0.1)
    assert pauses[-1] == pytest.approx(2.0)

    kind.record_answer(100.0, taken=1, limit=5, longest_poll=2.0)
    assert kind.due_at == pytest.approx(100.05)


def test_a_hint_is_worth_one_more_claim_a_moment_later():
    """A store may leave out a hint right after another one."""
    kind = RequestKind("hands")
    for _ in range(8):
        kind.record_answer(100.0, taken=0, limit=5, longest_poll=2.0)

    kind.hint(100.5)
    assert kind.due_at == 100.5
    kind.record_answer(100.5, taken=0, limit=5, longest_poll=2.0)
    assert kind.due_at == pytest.approx(100.55)
    kind.record_answer(100.55, taken=0, limit=5, longest_poll=2.0)

    assert kind.due_at == pytest.approx(102.55)
