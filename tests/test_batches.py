"""Batch tasks: one call for many jobs, an outcome for each; on a real worker in this process."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    App,
    BatchTask,
    JobFailed,
    Refused,
    Retry,
    RetryLater,
    State,
    current_job,
    current_jobs,
    use,
)
from tests.workers import SOON, attempts, doubling, drain


@dataclass
class Message:
    to: str
    text: str = ""


@pytest.fixture
def app(store_app: App) -> App:
    return store_app


def test_one_call_takes_many_jobs_and_each_has_its_own_result(app: App):
    """G34, A51: up to `size` jobs a call, in order, a result for each."""
    double, calls = doubling(app, size=10, linger=0.05)
    handles = [double.enqueue(n) for n in range(25)]

    worker = drain(app)

    assert [handle.result(timeout=0) for handle in handles] == [2 * n for n in range(25)]
    assert sorted(n for call in calls for n in call) == list(range(25))
    assert max(map(len, calls)) == 10
    assert (worker.settled, worker.stale) == (25, 0)
    assert [attempts(app, handle.id) for handle in handles] == 25 * [[(State.SUCCEEDED, None)]]


def test_jobs_in_bulk_fill_their_calls_without_waiting(app: App):
    """G34, B31: chunks of a bulk, with no linger."""
    double, calls = doubling(app, size=100)
    double.enqueue_many([(n,) for n in range(1000)], id="rows")

    drain(app)

    assert sorted(n for call in calls for n in call) == list(range(1000))
    assert Counter(map(len, calls))[100] >= 9


def test_a_key_of_a_queue_in_batches_has_one_call_at_a_time_in_order(app: App):
    """B52: however many threads there are, and more jobs of each key than a call takes."""
    app.queue("events", ordered="batch")
    calls: list[list[tuple[str, int]]] = []
    running: Counter[str] = Counter()
    together: list[str] = []

    @app.batch_task(size=4, by_key=True, queue="events")
    def apply(events: list[tuple[str, int]]) -> None:
        [key] = {key for key, _ in events}
        running[key] += 1
        if running[key] > 1:
            together.append(key)
        calls.append(events)
        running[key] -= 1

    for number in range(30):
        for key in ("ada", "bob"):
            apply.options(key=key).enqueue((key, number))

    drain(app, threads=4)

    for key in ("ada", "bob"):
        assert [n for call in calls for k, n in call if k == key] == list(range(30))
    assert together == []
    assert max(map(len, calls)) == 4


def test_a_batch_by_key_is_of_one_key(app: App):
    """G34: up to k jobs of one group."""
    calls: list[list[str]] = []

    @app.batch_task(size=5, linger=0.1, by_key=True)
    def push(messages: list[Message]) -> None:
        calls.append([message.to for message in messages])

    for n in range(20):
        for to in ("ada", "bob"):
            push.options(key=to).enqueue(Message(to, str(n)))

    drain(app)

    assert all(len(set(call)) == 1 for call in calls)
    assert max(map(len, calls)) == 5
    assert Counter(to for call in calls for to in call) == {"ada": 20, "bob": 20}


def test_an_async_batch_task_runs_on_the_loop(app: App):
    calls: list[list[int]] = []

    @app.batch_task(size=4, linger=0.05)
    async def triple(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        await asyncio.sleep(0)
        return [3 * number for number in numbers]

    handles = [triple.enqueue(n) for n in range(10)]

    drain(app)

    assert [handle.result(timeout=0) for handle in handles] == [3 * n for n in range(10)]
    assert max(map(len, calls)) == 4


def test_each_entry_is_the_end_of_one_job(app: App):
    """G34: a value, an exception, which the retry rule answers, or RetryLater."""
    asked: Counter[int] = Counter()

    @app.batch_task(size=10, linger=0.05, retry=Retry(limit=1, delay=0, never=(KeyError,)))
    def push(numbers: list[int]) -> list[int | Exception]:
        asked.update(numbers)
        answers: dict[int, Any] = {1: ValueError("no"), 2: KeyError("never"), 3: RetryLater(0)}
        return [answers[n] if n in answers and (n != 3 or asked[n] == 1) else n for n in numbers]

    handles = [push.enqueue(n) for n in range(5)]

    drain(app)

    assert [attempts(app, handle.id) for handle in handles] == [
        [(State.SUCCEEDED, None)],
        [(State.READY, "error"), (State.FAILED, "error")],
        [(State.FAILED, "error")],
        [(State.READY, "later"), (State.SUCCEEDED, None)],
        [(State.SUCCEEDED, None)],
    ]
    with pytest.raises(JobFailed, match="ValueError: no"):
        handles[1].result(timeout=0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_call_that_raises_fails_its_jobs_and_then_each_is_called_alone(
    app: App, *, asynchronous: bool
):
    """G34: a poison among a hundred fails alone in the end."""
    calls: list[list[int]] = []

    def look(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        if 7 in numbers:
            raise ValueError("poison")
        return numbers

    options: dict[str, Any] = {"size": 10, "linger": 0.05, "retry": Retry(limit=1, delay=0)}
    push: BatchTask[int, int]
    if asynchronous:

        @app.batch_task(**options)
        async def push_async(numbers: list[int]) -> list[int]:
            return look(numbers)

        push = push_async
    else:

        @app.batch_task(**options)
        def push_plain(numbers: list[int]) -> list[int]:
            return look(numbers)

        push = push_plain
    handles = [push.enqueue(n) for n in range(10)]

    drain(app)

    states = [handle.state() for handle in handles]
    assert states == [State.FAILED if n == 7 else State.SUCCEEDED for n in range(10)]
    assert [7] in calls
    assert all(len(call) == 1 for call in calls if 7 not in call and min(call) < 7 < max(call))
    assert attempts(app, handles[7].id) == [(State.READY, "error"), (State.FAILED, "error")]


@pytest.mark.parametrize(
    ("returned", "message"),
    [([1, 2, 3], "3 entries for 2 jobs"), ("ab", "returned str for 2 jobs")],
)
def test_an_answer_that_does_not_fit_is_the_error_of_every_job(
    app: App, returned: Any, message: str
):
    @app.batch_task(size=2, linger=SOON)
    def push(numbers: list[int]) -> list[int]:
        return returned

    handles = [push.enqueue(n) for n in range(2)]

    drain(app)

    for handle in handles:
        with pytest.raises(JobFailed, match=message):
            handle.result(timeout=0)


def test_one_result_that_cannot_be_stored_fails_alone(app: App):
    @app.batch_task(size=2, linger=SOON)
    def push(numbers: list[int]) -> list[int]:
        answers: list[Any] = [1, "one"]
        return answers

    good, bad = push.enqueue(1), push.enqueue(2)

    drain(app)

    assert good.result(timeout=0) == 1
    assert attempts(app, bad.id) == [(State.FAILED, "unstorable")]


def test_none_means_that_all_of_them_succeeded(app: App):
    @app.batch_task(size=3, linger=SOON)
    def push(messages: list[Message]) -> list[int | Exception] | None:
        return None

    handles = [push.enqueue(Message("ada")) for _ in range(3)]

    drain(app)

    assert [handle.result(timeout=0) for handle in handles] == 3 * [None]


def test_inside_there_is_a_current_job_for_each_item(app: App):
    """Headers, attempts and notes are each job's own; there is no one job, and no transaction."""
    seen: list[tuple[str, str]] = []

    @app.batch_task(size=2, linger=SOON, retry=Retry(limit=1, delay=0))
    def push(messages: list[Message]) -> None:
        for message, job in zip(messages, current_jobs(), strict=True):
            seen.append((message.to, job.headers["tenant"]))
            job.progress(1.0, message.to)
        with pytest.raises(RuntimeError, match="current_jobs"):
            current_job()
        with (
            pytest.raises(Refused, match="a task of one job"),
            current_jobs()[0].transaction(),
        ):
            pass
        if len(messages) > 1:
            raise ValueError("now alone, with the same code")

    for to in ("ada", "bob"):
        push.options(headers={"tenant": to}).enqueue(Message(to))

    drain(app)

    assert Counter(seen) == {("ada", "ada"): 2, ("bob", "bob"): 2}


def test_hooks_and_middleware_are_called_once_for_each_job(app: App):
    """Each sees its own value or exception; one that is not let through is not in the call."""
    heard: Counter[str] = Counter()

    @app.hook("claimed")
    def claimed(job: Any) -> None:
        heard["claimed"] += 1

    @app.hook("succeeded")
    def succeeded(job: Any, outcome: Any) -> None:
        heard["succeeded"] += 1

    @app.hook("failed")
    def failed(job: Any, outcome: Any) -> None:
        heard["failed"] += 1

    @app.middleware
    def guard(call_next: Any, job: Any) -> Any:
        if current_job().headers.get("stop"):
            raise PermissionError("stopped")
        try:
            return call_next() + 1
        except KeyError:
            return -1

    calls: list[list[int]] = []

    @app.batch_task(size=4, linger=SOON)
    def push(numbers: list[int]) -> list[int | Exception]:
        calls.append(numbers)
        return [KeyError(n) if n == 2 else 10 * n for n in numbers]

    handles = [
        push.options(headers={"stop": "x"} if n == 3 else None).enqueue(n) for n in range(1, 5)
    ]

    drain(app)

    assert calls == [[1, 2, 4]]
    assert [handles[n].result(timeout=0) for n in (0, 1, 3)] == [11, -1, 41]
    with pytest.raises(JobFailed, match="stopped"):
        handles[2].result(timeout=0)
    assert heard == {"claimed": 4, "succeeded": 3, "failed": 1}


def test_middleware_around_a_large_batch_does_not_exhaust_the_stack(app: App):
    @app.middleware
    def through(call_next: Any, job: Any) -> Any:
        return call_next()

    double, calls = doubling(app, size=1000)
    double.enqueue_many([(n,) for n in range(1000)])

    drain(app)

    assert sorted(n for call in calls for n in call) == list(range(1000))
    assert max(map(len, calls)) > 50


def test_a_secret_of_one_job_is_not_told_by_the_error_of_another(app: App):
    """The traceback of a call may hold the arguments of any job in it."""

    @app.batch_task(size=2, linger=SOON, secret=("messages",))
    def push(messages: list[Message]) -> None:
        raise ValueError(f"cannot send {[message.text for message in messages]}")

    handles = [push.enqueue(Message(to, f"password-of-{to}")) for to in ("ada", "bob")]

    drain(app)

    for handle in handles:
        with pytest.raises(JobFailed) as failed:
            handle.result(timeout=0)
        assert "password" not in f"{failed.value.remote_traceback}"


def test_resources_are_filled_in_for_the_call(app: App):
    made: list[str] = []

    def connect() -> str:
        made.append("client")
        return "client"

    @app.batch_task(size=2, linger=SOON)
    def push(messages: list[Message], client: str = use(connect)) -> list[str]:
        return [f"{message.to} by {client}" for message in messages]

    handles = [push.enqueue(Message(to)) for to in ("ada", "bob")]

    drain(app)

    assert [handle.result(timeout=0) for handle in handles] == ["ada by client", "bob by client"]
    assert push([Message("eve")]) == ["eve by client"]
    assert len(made) <= 2


def test_a_batch_of_jobs_that_need_others(app: App):
    """Their arguments are filled in, each with its own."""
    double, calls = doubling(app, size=10, linger=0.2)

    @app.task
    def first(n: int) -> int:
        return n + 1

    handles = [double.job(first.job(n).output).enqueue() for n in range(3)]

    drain(app)

    assert [handle.result(timeout=0) for handle in handles] == [2, 4, 6]
    assert sorted(n for call in calls for n in call) == [1, 2, 3]


def test_each_job_may_spawn_others(app: App):
    ran: list[int] = []

    @app.task
    def child(n: int) -> None:
        ran.append(n)

    @app.batch_task(size=2, linger=SOON)
    def push(numbers: list[int]) -> None:
        for number, job in zip(numbers, current_jobs(), strict=True):
            job.spawn(child.job(number))

    push.enqueue_many([(1,), (2,)])

    drain(app)

    assert sorted(ran) == [1, 2]


def test_the_testing_kit_runs_them_one_by_one():
    app = App("memory:")
    double, calls = doubling(app, size=10, linger=SOON)

    with app.testing() as t:
        handles = [double.enqueue(n) for n in range(3)]
        t.assert_enqueued(double, 2)
        t.drain()
        assert [handle.result(timeout=0) for handle in handles] == [0, 2, 4]

    assert calls == [[0], [1], [2]]


def test_what_cannot_be_a_batch_task_is_refused():
    app = App("memory:")

    def none() -> None: ...
    def default(messages: list[int] = []) -> None: ...  # noqa: B006  refused, not called
    def two(messages: list[int], other: int) -> None: ...
    def flag(messages: list[int], dry: bool = False) -> None: ...
    def bare(messages: Message) -> None: ...
    def fine(messages: list[int]) -> None: ...

    for function, message in [
        (none, "must take a list"),
        (default, "must take a list"),
        (two, "one list and, beside it, resources only"),
        (flag, "one list and, beside it, resources only"),
        (bare, r"write list\[\.\.\.\]"),
    ]:
        with pytest.raises(Refused, match=message):
            app.batch_task(size=10)(function)
    for size in (0, 1001, "ten"):
        with pytest.raises(Refused, match="a whole number from 1 to 1000"):
            app.batch_task(size=size)(fine)
    with pytest.raises(Refused, match="at most 60 seconds"):
        app.batch_task(size=10, linger=61)(fine)


def test_an_argument_that_is_not_an_item_is_refused_at_enqueue():
    app = App("memory:")

    @app.batch_task(size=10)
    def push(messages: list[Message]) -> None: ...

    with pytest.raises(Refused, match="messages: Message"):
        push.enqueue([Message("ada")])
