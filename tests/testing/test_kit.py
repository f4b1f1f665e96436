"""app.testing(): the store swapped and given back, jobs run here, the clock moved."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from penstock import (
    App,
    JobFailed,
    Refused,
    Repeat,
    ResultGone,
    Retry,
    RetryLater,
    State,
    current_job,
    use,
)
from penstock.rules.rule import rule_id


@dataclass
class Order:
    number: int
    lines: list[str]


@pytest.fixture
def app(tmp_path):
    """An app as a project makes it, whose store must never be opened by a test."""
    app = App(f"sqlite:///{tmp_path}/production.db")
    yield app
    assert not (tmp_path / "production.db").exists()


def test_a_job_runs_when_it_is_drained_and_not_before(app):
    calls = []

    @app.task
    def greet(name: str) -> str:
        calls.append(name)
        return f"hello {name}"

    with app.testing() as t:
        handle = greet.enqueue("ada")
        assert calls == []

        [ran] = t.drain()

        assert calls == ["ada"]
        assert (ran.task, ran.state, ran.died_at) == (greet.name, State.SUCCEEDED, None)
        assert handle.result(timeout=0) == "hello ada"
        assert t.drain() == []


def test_the_store_comes_back_after_the_test_and_after_an_error(app, tmp_path):
    other = App(f"sqlite:///{tmp_path}/other.db")
    before = other.broker
    ids, clock, resources = other.ids, other.clock, other.resources

    def a_test_that_fails() -> None:
        with other.testing() as t:
            assert other.broker is not before
            assert other.clock is t.clock
            assert other.ids.clock is t.clock
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        a_test_that_fails()

    assert other.broker is before
    assert (other.ids, other.clock, other.resources) == (ids, clock, resources)
    assert other.middlewares == ()
    assert other.async_middlewares == ()
    other.close()


def test_testing_inside_testing_is_refused_and_changes_nothing(app):
    with app.testing() as t:
        with pytest.raises(Refused, match="under test already"), app.testing():
            pass

        assert app.broker is t.broker
    with app.testing():
        pass


def test_after_the_test_the_kit_says_that_it_is_over(app):
    with app.testing() as t:
        pass

    with pytest.raises(Refused, match="the test is over"):
        t.drain()
    with pytest.raises(Refused, match="the test is over"):
        t.jobs()


def test_jobs_that_jobs_enqueue_are_run_too(app):
    seen = []

    @app.task
    def count_down(n: int) -> None:
        seen.append(n)
        if n:
            count_down.enqueue(n - 1)

    with app.testing() as t:
        count_down.enqueue(5)

        assert len(t.drain()) == 6
        assert seen == [5, 4, 3, 2, 1, 0]


def test_a_retry_that_is_due_later_waits_for_the_clock(app):
    @app.task(retry=Retry(limit=2, delay=300))
    def flaky() -> None:
        raise OSError("no route")

    with app.testing() as t:
        handle = flaky.enqueue()

        assert [ran.state for ran in t.drain()] == [State.READY]
        assert t.drain() == []
        t.clock.advance(seconds=299)
        assert t.drain() == []
        t.clock.advance(seconds=1)
        assert [ran.state for ran in t.drain()] == [State.READY]
        t.clock.advance(minutes=5)
        assert [ran.state for ran in t.drain()] == [State.FAILED]
        with pytest.raises(JobFailed, match="no route"):
            handle.result(timeout=0)


def test_a_delayed_job_waits_for_the_clock(app):
    @app.task
    def remind() -> None: ...

    with app.testing() as t:
        remind.options(delay=86400 * 30).enqueue()

        assert t.drain() == []
        t.clock.advance(days=30)
        assert [ran.state for ran in t.drain()] == [State.SUCCEEDED]


def test_retry_later_is_put_back_and_counts_nothing(app):
    @app.task
    def wait_for_it() -> None:
        if current_job().attempt < 3:
            raise RetryLater(after=30)

    with app.testing() as t:
        wait_for_it.enqueue()

        for _ in range(3):
            t.drain()
            t.clock.advance(seconds=30)

        [job] = t.jobs()
        assert (job.state, job.failures, job.lapses) == (State.SUCCEEDED, 0, 0)


def test_a_limit_stops_after_so_many_attempts(app):
    @app.task
    def step(n: int) -> None: ...

    with app.testing() as t:
        for n in range(5):
            step.enqueue(n)

        assert len(t.drain(limit=2)) == 2
        assert len(t.jobs(state="ready")) == 3
        assert len(t.drain()) == 3


def test_a_task_that_never_stops_is_an_error_and_not_a_hang(app, monkeypatch):
    monkeypatch.setattr("penstock.testing.inline_worker.RUNAWAY", 50)

    @app.task(on_success=Repeat())
    def poll() -> None: ...

    with app.testing() as t:
        poll.enqueue()

        with pytest.raises(AssertionError, match=r"made 50 attempts and .*poll is due again"):
            t.drain()
        assert [job.state for job in t.jobs()] == [State.READY]


def test_async_tasks_run_on_a_loop_that_lives_as_long_as_the_test(app):
    loops = []

    @app.task
    async def fetch(url: str) -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return len(url)

    with app.testing() as t:
        first, second = fetch.enqueue("a"), fetch.enqueue("bb")

        t.drain()

        assert (first.result(timeout=0), second.result(timeout=0)) == (1, 2)
        assert loops[0] is loops[1]
    assert loops[0].is_closed()


def test_drain_inside_a_running_loop_says_what_to_do_instead(app):
    @app.task
    async def fetch() -> None: ...

    async def a_test_of_the_users() -> list:
        await fetch.enqueue_async()
        with pytest.raises(Refused, match="to_thread"):
            t.drain()
        return await asyncio.to_thread(t.drain)

    with app.testing() as t:
        assert [ran.state for ran in asyncio.run(a_test_of_the_users())] == [State.SUCCEEDED]


def test_time_that_passes_in_a_task_beyond_its_timeout_times_it_out(app):
    timed_out = []

    @app.hook("timed_out")
    def note(job, outcome) -> None:
        timed_out.append(outcome.reason)

    @app.task(timeout=60)
    def slow(seconds: int) -> None:
        t.clock.advance(seconds)

    @app.task(timeout=60)
    async def slow_too(seconds: int) -> None:
        t.clock.advance(seconds)
        raise OSError("the connection timed out at last")

    with app.testing() as t:
        late, quick, later = slow.enqueue(61), slow.enqueue(60), slow_too.enqueue(61)

        t.drain()

        assert quick.state() is State.SUCCEEDED
        for handle in (late, later):
            with pytest.raises(JobFailed, match="timeout"):
                handle.result(timeout=0)
        assert timed_out == ["timeout", "timeout"]


def test_resources_are_replaced_for_one_test_only(app):
    made = []

    def make_client() -> str:
        made.append("real")
        return "real"

    @app.task
    def send(client: str = use(make_client)) -> str:
        return client

    with app.testing() as t:
        t.replace(make_client, "fake")
        handle = send.enqueue()
        t.drain()
        assert handle.result(timeout=0) == "fake"
        assert made == []

    with app.testing() as t:
        handle = send.enqueue()
        t.drain()
        assert handle.result(timeout=0) == "real"


def test_resources_opened_in_a_test_are_closed_at_its_end(app):
    events = []

    @contextmanager
    def database():
        events.append("open")
        yield "database"
        events.append("close")

    async def pool():
        events.append("open pool")
        yield "pool"
        events.append("close pool")

    @app.task
    def save(db: str = use(database)) -> None: ...

    @app.task
    async def save_too(pool: str = use(pool)) -> None: ...

    with app.testing() as t:
        save.enqueue()
        save_too.enqueue()
        save.enqueue()
        t.drain()
        assert events == ["open", "open pool"]

    assert events == ["open", "open pool", "close pool", "close"]


def test_hooks_and_middleware_of_the_app_are_the_real_ones(app):
    order = []

    @app.middleware
    def around(call_next, job):
        order.append("before")
        try:
            return call_next()
        finally:
            order.append("after")

    @app.hook("claimed")
    def claimed(job) -> None:
        order.append("claimed")

    @app.hook("succeeded")
    def succeeded(job, outcome) -> None:
        order.append("succeeded")

    @app.task
    def work() -> None:
        order.append("work")

    with app.testing() as t:
        work.enqueue()
        t.drain()

    assert order == ["claimed", "before", "work", "after", "succeeded"]


def test_a_task_that_needs_tags_runs_here_too(app):
    @app.task(runs_on=("gpu",))
    def train() -> None: ...

    with app.testing() as t:
        train.enqueue()

        assert [ran.state for ran in t.drain()] == [State.SUCCEEDED]


def test_paused_jobs_stay_until_they_are_resumed(app):
    from penstock.rules.rule import Rule, RuleKind

    @app.task(queue="mail")
    def send() -> None: ...

    with app.testing() as t:
        send.enqueue()
        t.broker.put(Rule(RuleKind.PAUSE, queue="mail"))
        assert t.drain() == []

        t.broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"))

        assert len(t.drain()) == 1


def test_jobs_are_found_by_task_and_state_oldest_first(app):
    @app.task
    def good(n: int) -> None: ...

    @app.task
    def bad() -> None:
        raise ValueError

    with app.testing() as t:
        for n in range(3):
            good.enqueue(n)
            t.clock.advance(seconds=1)
        bad.enqueue()
        t.drain()

        assert len(t.jobs()) == 4
        assert [job.task for job in t.jobs(state="failed")] == [bad.name]
        assert [b'"n":%d' % n in job.body for n, job in enumerate(t.jobs(good))] == [True] * 3
        assert len(t.jobs(good.name, State.SUCCEEDED)) == 3


def test_a_real_store_joins_the_callers_transaction(app, tmp_path):
    path = tmp_path / "shop.db"

    @app.task
    def send(order: int) -> None: ...

    with app.testing(url=f"sqlite:///{path}") as t:
        t.jobs()
        shop = sqlite3.connect(path)
        shop.execute("create table orders (id integer)")

        shop.execute("insert into orders values (1)")
        send.options(connection=shop).enqueue(1)
        shop.rollback()
        t.assert_not_enqueued(send)

        with shop:
            shop.execute("insert into orders values (2)")
            send.options(connection=shop).enqueue(2)
        t.assert_enqueued(send, 2, times=1)
        t.drain()
        assert [job.state for job in t.jobs()] == [State.SUCCEEDED]
        shop.close()


def test_effects_and_end_commit_together_on_a_real_store(app, tmp_path):
    path = tmp_path / "shop.db"

    @app.task
    def book(n: int) -> None:
        with current_job().transaction() as connection:
            connection.execute("insert into booking values (?)", (n,))

    with app.testing(url=f"sqlite:///{path}") as t:
        t.jobs()
        shop = sqlite3.connect(path)
        shop.execute("create table booking (n integer)")
        shop.commit()
        handle = book.enqueue(7)

        with t.crash_at("settle"):
            ran = t.drain()

        assert [each.died_at for each in ran] == ["settle", None]
        assert handle.state() is State.SUCCEEDED
        assert shop.execute("select n from booking").fetchall() == [(7,)]
        shop.close()


def test_a_result_that_is_not_kept_is_gone_in_a_test_as_well(app):
    @app.task(on_success="delete")
    def forget() -> int:
        return 1

    with app.testing() as t:
        handle = forget.enqueue()

        [ran] = t.drain()

        assert ran.state is None
        with pytest.raises(ResultGone):
            handle.result(timeout=0)


def test_contexts_of_the_test_are_seen_by_async_tasks(app):
    import contextvars

    tenant = contextvars.ContextVar("tenant", default="none")
    seen = []

    @app.task
    async def look() -> None:
        seen.append(tenant.get())

    with app.testing() as t:
        for name in ("a", "b"):
            tenant.set(name)
            look.enqueue()
            t.drain()

    assert seen == ["a", "b"]


def test_dataclasses_travel_as_they_do_in_production(app):
    got = []

    @app.task
    def ship(order: Order) -> None:
        got.append(order)

    with app.testing() as t:
        ship.enqueue(Order(7, ["tea"]))
        t.drain()

        t.assert_enqueued(ship, Order(7, ["tea"]))
        t.assert_not_enqueued(ship, Order(8, ["tea"]))
    assert got == [Order(7, ["tea"])]
