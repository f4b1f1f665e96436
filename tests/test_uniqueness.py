"""Unique keys as a caller sees them: whichever way a job is handed over, it is told which stands.

How long one stands is shown, verb by verb, in penstock/testing/conformance/core/test_unique.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import App, Handle, Refused, RetryLater, State, Task, current_job
from penstock.broker.protocol import Broker
from penstock.broker.views import WorkerRow
from penstock.job import succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import claim_for

Hand = Callable[[App, Any], Handle[Any]]

# Every way from a prepared task to a handle.
WAYS: dict[str, Hand] = {
    "enqueue": lambda app, send: send.enqueue(1),
    "job.enqueue": lambda app, send: send.job(1).enqueue(),
    "enqueue_async": lambda app, send: asyncio.run(send.enqueue_async(1)),
    "app.enqueue": lambda app, send: app.enqueue([send.job(1)])[0],
    "app.enqueue_async": lambda app, send: asyncio.run(app.enqueue_async([send.job(1)]))[0],
}


@pytest.fixture
def app(broker: Broker) -> App:
    return App(broker=broker)


@pytest.fixture
def send(app: App) -> Task[[int], None]:
    @app.task(name="send")
    def send(n: int) -> None: ...

    return send


def claim(app: App) -> list[Any]:
    return claim_for(app.broker, WorkerRow(id="worker", tasks=app.known_tasks()), None, limit=10)


@pytest.mark.parametrize("way", WAYS)
def test_the_caller_is_told_which_job_stands(app: App, send: Any, way: str):
    """A51: the handle is that of the job that stands, and says that it is another's."""
    first = WAYS[way](app, send.options(unique="welcome"))
    second = WAYS[way](app, send.options(unique="welcome"))
    other = WAYS[way](app, send.options(unique="farewell"))

    assert (first.stored, second.stored, other.stored) == (True, False, True)
    assert second.id == first.id != other.id
    assert [job.id for job in claim(app)] == [first.id, other.id]


@pytest.mark.parametrize("way", WAYS)
def test_until_it_started(app: App, send: Any, way: str):
    once = send.options(unique="k", unique_until="started")
    first = WAYS[way](app, once)
    assert WAYS[way](app, once).id == first.id

    claim(app)

    assert WAYS[way](app, once).stored


@pytest.mark.parametrize("way", WAYS)
def test_until_it_ended(app: App, send: Any, way: str):
    once = send.options(unique="k", unique_until="ended")
    first = WAYS[way](app, once)
    [job] = claim(app)
    assert WAYS[way](app, once).id == first.id

    app.broker.settle([(job, succeeded())])

    assert WAYS[way](app, once).stored


@pytest.mark.parametrize("way", WAYS)
def test_for_a_time(app: App, send: Any, clock: Clock, way: str):
    once = send.options(unique="k", unique_until="time", unique_for=timedelta(minutes=1))
    first = WAYS[way](app, once)
    [job] = claim(app)
    app.broker.settle([(job, succeeded())])
    clock.advance(seconds=59)
    assert WAYS[way](app, once).id == first.id

    clock.advance(seconds=1)

    assert WAYS[way](app, once).stored


def test_among_jobs_stored_together_each_handle_names_its_own(app: App, send: Any):
    """All or none holds for what is refused, not for what stands already."""
    standing = send.options(unique="a").enqueue(1)
    once, again = send.options(unique="a"), send.options(unique="b")

    handles = app.enqueue([once.job(1), again.job(2), send.job(3), again.job(4)])

    assert [handle.stored for handle in handles] == [False, True, True, False]
    assert handles[0].id == standing.id
    assert handles[3].id == handles[1].id
    assert len(claim(app)) == 3


def test_many_callers_at_once_are_told_of_one_job(app: App, send: Any):
    once = send.options(unique="k")

    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(once.enqueue, range(50)))

    assert len({handle.id for handle in handles}) == 1
    assert [handle.stored for handle in handles].count(True) == 1


def test_a_job_that_is_sent_again_stands_for_itself(app: App, send: Any):
    """After an answer that was lost: stored once, and nobody else's."""
    job = send.options(unique="k").job(1)
    first = job.enqueue()

    again = job.enqueue()

    assert (again.id, again.stored) == (first.id, True)


def test_inside_of_the_callers_transaction(tmp_path: Path):
    path = tmp_path / "shop.db"
    app = App(f"sqlite:///{path}")

    @app.task
    def send(n: int) -> None: ...

    standing = send.options(unique="k").enqueue(1)
    with closing(sqlite3.connect(path)) as connection, connection:
        joined = send.options(unique="k", connection=connection).enqueue(2)
        fresh = send.options(unique="new", connection=connection).enqueue(3)
        within = send.options(unique="new", connection=connection).enqueue(4)

    assert (joined.id, joined.stored) == (standing.id, False)
    assert (within.id, within.stored) == (fresh.id, False)
    assert fresh.state() is State.READY
    app.close()


def test_a_key_taken_in_a_transaction_that_is_undone_is_free(tmp_path: Path):
    path = tmp_path / "shop.db"
    app = App(f"sqlite:///{path}")

    @app.task
    def send(n: int) -> None: ...

    send.enqueue(0)
    with closing(sqlite3.connect(path)) as connection:
        undone = send.options(unique="k", connection=connection).enqueue(1)
        connection.rollback()

    assert send.options(unique="k").enqueue(2).id != undone.id
    app.close()


def test_where_it_could_not_be_kept_it_is_refused(app: App, send: Any):
    """With a sentence that says why, before anything is stored."""
    once = send.options(unique="k")

    @app.task
    def after(done: None) -> None: ...

    for attempt, message in [
        (lambda: once.enqueue_many([(1,), (2,)]), "only the first row"),
        (lambda: once.map([1, 2]), "for one job"),
        (lambda: after.job(once.job(1).output).enqueue(), "cannot be in a flow"),
        (lambda: app.schedules.put("hourly", once, "0 * * * *", args=(1,)), "leave out"),
    ]:
        with pytest.raises(Refused, match=message):
            attempt()
    assert claim(app) == []


def test_a_job_that_is_spawned_cannot_keep_it_either():
    app = App("memory:")

    @app.task
    def child() -> None: ...

    @app.task
    def parent() -> None:
        with pytest.raises(Refused, match="which it cannot keep"):
            current_job().spawn(child.options(unique="k").job())

    with app.testing() as t:
        parent.enqueue()
        [ran] = t.drain()

    assert ran.state is State.SUCCEEDED


def test_throttle_the_first_call_of_a_minute_counts(app: App, send: Any, clock: Clock):
    """A51: throttle per key."""
    throttled = send.options(unique="digest-ada", unique_until="time", unique_for=60)

    stored: list[bool] = []
    for _ in range(6):
        stored.append(throttled.enqueue(1).stored)
        clock.advance(seconds=20)

    assert stored == [True, False, False, True, False, False]


def test_debounce_calls_until_it_starts_are_one(app: App, send: Any, clock: Clock):
    """A51: whatever comes before the start is folded in; nothing that comes after it is lost."""
    debounced = send.options(unique="reindex-7", unique_until="started", delay=5)
    first = debounced.enqueue(1)
    clock.advance(seconds=4)
    assert debounced.enqueue(2).id == first.id
    assert claim(app) == []
    clock.advance(seconds=1)
    assert [job.id for job in claim(app)] == [first.id]

    assert debounced.enqueue(3).stored


def test_debounce_by_slot_at_most_one_a_slot_and_never_none_after_a_call(
    app: App, send: Any, clock: Clock
):
    """A51: a call in a slot that has its job goes to the next one, once."""

    def by_slot(key: str, seconds: float) -> Handle[Any]:
        slot = int(clock.now() // seconds)
        now = send.options(unique=f"{key}:{slot}", unique_until="time", unique_for=seconds).enqueue(
            slot
        )
        if now.stored:
            return now
        left = (slot + 1) * seconds - clock.now()
        return send.options(
            unique=f"{key}:{slot + 1}", unique_until="time", unique_for=2 * seconds, delay=left
        ).enqueue(slot + 1)

    clock.advance(seconds=60 - clock.now() % 60)
    handles: list[Handle[Any]] = []
    for _ in range(6):
        handles.append(by_slot("report", 60))
        clock.advance(seconds=10)

    assert [handle.stored for handle in handles] == [True, True, False, False, False, False]
    assert {handle.id for handle in handles[1:]} == {handles[1].id}
    following = by_slot("report", 60)
    assert following.stored
    assert {job.id for job in claim(app)} == {handles[0].id, handles[1].id}
    clock.advance(seconds=60)
    assert [job.id for job in claim(app)] == [following.id]


def test_a_job_that_is_put_back_stands_until_it_ended():
    """So that a task may wait for quiet: RetryLater neither ends it nor lets a second one in."""
    app = App("memory:")
    changed_at = 0.0

    @app.task
    def reindex() -> None:
        quiet = app.clock.now() - changed_at
        if quiet < 5:
            raise RetryLater(after=5 - quiet)

    with app.testing() as t:
        once = reindex.options(unique="reindex")
        for _ in range(3):
            changed_at = t.clock.now()
            handle = once.enqueue()
            t.drain()
            t.clock.advance(seconds=3)
        assert handle.state() is State.READY
        t.clock.advance(seconds=2)
        t.drain()
        assert handle.state() is State.SUCCEEDED
        assert len(t.jobs(reindex)) == 1
