"""What the store shows of a job that starts, runs and ends, looked at by others, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import App, State, current_job
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.job import Job
from penstock.rules.rule import Rule, RuleKind
from penstock.task.retry import Retry
from penstock.testing.conformance.factories import a_worker, claim_for
from tests.workers import attempts, drain

RETURNED = [{"error": "no such user"}, "incomplete", False, None, ["ValueError", "no"]]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture
def t(url: str):
    with App("memory:").testing(url=url) as t:
        yield t


class Seen:
    """A program, and what somebody else finds in its store."""

    def __init__(self, broker: Broker, other: Broker) -> None:
        self.app = App(broker=broker)
        self.other = other
        self.states: list[tuple[State, int]] = []
        self.taken: list[Job[Any]] = []

    def look(self, id: str) -> None:
        job = self.other.get(id)
        assert job is not None
        self.states.append((job.state, job.attempt))
        self.other.recover()
        worker = a_worker("somebody-else", tasks=self.app.known_tasks())
        self.taken += claim_for(self.other, worker, None, 10)


@pytest.fixture
def seen(url: str) -> Iterator[Seen]:
    broker = open_broker(url)
    other = broker if url == "memory:" else open_broker(url)
    yield Seen(broker, other)
    other.close()
    broker.close()


def test_a_job_is_marked_as_running_before_its_task_is_called(seen: Seen) -> None:
    """V20: nobody is handed a job that the store does not show as handed out."""

    @seen.app.task(name="look")
    def look() -> None:
        seen.look(current_job().id)

    handle = look.enqueue()
    drain(seen.app, threads=1)

    assert seen.states == [(State.RUNNING, 1)]
    assert seen.taken == []
    assert handle.state() is State.SUCCEEDED


def test_a_hook_at_the_start_may_be_slow_as_the_job_is_held_already(seen: Seen) -> None:
    """B39: the claim comes before the hook, and nobody else is handed the job meanwhile."""

    @seen.app.task(name="work")
    def work() -> None: ...

    @seen.app.hook("claimed")
    def claimed(job: Job[Any]) -> None:
        seen.look(job.id)

    handle = work.enqueue()
    drain(seen.app, threads=1)

    assert seen.states == [(State.RUNNING, 1)]
    assert seen.taken == []
    assert attempts(seen.app, handle.id) == [(State.SUCCEEDED, None)]


def test_a_job_that_timed_out_is_held_until_its_end_is_stored(seen: Seen) -> None:
    """B38: nobody else takes it while it tidies up, and then it is tried again."""

    @seen.app.task(name="spin", timeout=0.1, retry=Retry(limit=1, delay=0))
    def spin() -> None:
        try:
            while True:
                pass
        finally:
            seen.look(current_job().id)

    handle = spin.enqueue()
    drain(seen.app, threads=1)

    assert seen.states == [(State.RUNNING, 1), (State.RUNNING, 2)]
    assert seen.taken == []
    assert attempts(seen.app, handle.id) == [(State.READY, "timeout"), (State.FAILED, "timeout")]


@pytest.mark.parametrize("value", RETURNED, ids=str)
def test_what_is_returned_is_a_success_though_it_looks_like_an_error(t, value: Any) -> None:
    """D23: it is run once and is done, whatever its retry rule would say of an error."""

    @t.app.task(name="answer", retry=Retry(limit=3, delay=0))
    def answer() -> Any:
        return value

    kept = answer.enqueue()
    deleted = answer.options(on_success="delete").enqueue()
    t.drain()
    t.clock.advance(days=1)
    t.drain()

    assert kept.result(timeout=0) == value
    assert deleted.state() is None
    for handle in (kept, deleted):
        assert attempts(t.app, handle.id) == [(State.SUCCEEDED, None)]


def test_the_last_ten_runs_of_a_task_are_found_with_what_they_were_given(t) -> None:
    """D63: of eleven, the newest first."""

    @t.app.task(name="run")
    def run(n: int) -> None: ...

    @t.app.task(name="other")
    def other() -> None: ...

    for n in range(11):
        run.enqueue(n)
        other.enqueue()
        t.drain()
        t.clock.advance(seconds=1)

    page = t.broker.find(Filter(task=("run",), state=(State.SUCCEEDED,)), limit=10)

    assert [job.body for job in page.jobs] == [b'{"args":{"n":%d}}' % n for n in range(10, 0, -1)]


def test_a_task_that_enqueues_itself_for_ever_is_stopped_by_a_block(t) -> None:
    """D67: the loop is allowed; blocked, the next one stays where it is."""
    rounds: list[int] = []

    @t.app.task(name="loop")
    def loop(n: int) -> None:
        rounds.append(n)
        loop.options(delay=1).enqueue(n + 1)

    loop.enqueue(0)
    for _ in range(3):
        t.drain()
        t.clock.advance(seconds=1)
    assert rounds == [0, 1, 2]

    t.broker.put(Rule(RuleKind.BLOCK, task="loop"))
    for _ in range(3):
        t.drain()
        t.clock.advance(seconds=1)

    assert rounds == [0, 1, 2]
    assert [(count.task, count.paused) for count in t.broker.count()] == [("loop", 1)]
