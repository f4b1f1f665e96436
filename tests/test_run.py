"""One attempt at a job: what user code does becomes an outcome, and nothing gets out."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import App, Job, Refused, Repeat, Retry, RetryLater, current_job
from penstock.brokers.memory import MemoryBroker
from penstock.errors import JobInterrupted, JobTimeout
from penstock.job import Fault, Outcome, State
from penstock.run.attempt import run, run_async, timed_out
from penstock.run.describe_error import LONGEST_TRACEBACK
from penstock.testing.clock import Clock


@pytest.fixture
def app(memory_broker: MemoryBroker) -> App:
    return App(broker=memory_broker)


def done(outcome: Outcome | None) -> Outcome:
    assert outcome is not None
    return outcome


def raising(app: App, error: BaseException, **options: Any) -> tuple[Any, Job[Any]]:
    @app.task(name="fails", **options)
    def fails() -> None:
        raise error

    return fails, fails.job()


def test_what_is_returned_is_a_success_with_its_result(app: App, clock: Clock) -> None:
    @app.task
    def add(a: int, b: int = 2) -> int:
        clock.advance(seconds=3)
        return a + b

    started = clock.now()

    assert run(app, add, add.job(1)) == Outcome(
        State.SUCCEEDED, result=b"3", started_at=started, ended_at=started + 3
    )


def test_none_needs_no_result(app: App) -> None:
    @app.task
    def nothing() -> None: ...

    assert done(run(app, nothing, nothing.job())).result is None


def test_what_is_raised_is_a_failure_with_a_traceback_of_user_code_alone(app: App) -> None:
    task, job = raising(app, ValueError("no such customer"))

    outcome = done(run(app, task, job))

    assert (outcome.state, outcome.reason, outcome.failures) == (State.FAILED, "error", 1)
    assert outcome.error is not None
    assert outcome.error.startswith(
        "ValueError: no such customer\n\nTraceback (most recent call last):"
    )
    assert outcome.error.endswith("ValueError: no such customer")
    assert "raise error" in outcome.error
    assert "run.py" not in outcome.error.replace("test_run.py", "")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_even_what_would_end_a_process_is_only_a_failure(app: App, error: BaseException) -> None:
    task, job = raising(app, error, retry=Retry(limit=5))

    assert done(run(app, task, job)).state is State.FAILED


def test_the_retry_rule_of_the_task_or_the_job_applies(app: App, clock: Clock) -> None:
    task, job = raising(app, OSError(), retry=Retry(limit=2, delay=300, on=(OSError,)))

    again = done(run(app, task, job))
    hurried = done(run(app, task, task.options(retry=Retry(limit=1, delay=1)).job()))
    never = done(run(app, task, task.options(retry=Retry(limit=0), on_error="delete").job()))

    assert (again.state, again.run_at) == (State.READY, clock.now() + 300)
    assert (hurried.state, hurried.run_at) == (State.READY, clock.now() + 1)
    assert (never.state, never.keep) == (State.FAILED, False)


def test_a_success_may_be_repeated(app: App, clock: Clock) -> None:
    @app.task(on_success=Repeat(delay=4))
    def poll() -> str:
        return "seen"

    outcome = done(run(app, poll, poll.job()))

    assert (outcome.state, outcome.run_at, outcome.repeats) == (State.READY, clock.now() + 4, 1)
    once = done(run(app, poll, poll.options(on_success="keep").job()))
    assert (once.state, once.result) == (State.SUCCEEDED, b'"seen"')


def test_retry_later_puts_it_back_uncounted(app: App, clock: Clock) -> None:
    task, job = raising(app, RetryLater(after=30))

    assert run(app, task, job) == Outcome(
        State.READY,
        "later",
        run_at=clock.now() + 30,
        started_at=clock.now(),
        ended_at=clock.now(),
    )


def test_retry_later_at_a_moment(app: App, clock: Clock) -> None:
    """B36: put back until a given time."""
    moment = datetime.fromtimestamp(clock.now() + 90, UTC)
    outcome = done(run(app, *raising(app, RetryLater(at=moment))))

    assert (outcome.state, outcome.run_at) == (State.READY, pytest.approx(clock.now() + 90))
    with pytest.raises(Refused, match="time zone"):
        RetryLater(at=datetime(2026, 11, 15))  # noqa: DTZ001  that is the point


def test_retry_later_says_why(app: App) -> None:
    """G41."""
    task, job = raising(app, RetryLater(after=30, note="the account is being moved"))

    assert done(run(app, task, job)).error == "the account is being moved"


def test_a_timeout_has_its_strategy_and_its_words(app: App) -> None:
    task, job = raising(app, JobTimeout(), timeout=5, on_timeout=Repeat(limit=1))

    outcome = done(run(app, task, job))

    assert (outcome.state, outcome.reason, outcome.repeats) == (State.READY, "timeout", 1)
    assert outcome.error is not None
    assert outcome.error.startswith("TimeoutError: ran longer than its timeout of 5.0 s\n\nTraceb")
    assert "raise error" in outcome.error


def test_a_process_that_had_to_be_ended_timed_out(app: App) -> None:
    task, _ = raising(app, ValueError(), retry=Retry(limit=1, delay=10))
    job = task.options(timeout=2).job()

    outcome = timed_out(task, job, 100.0, 90.0, "its process was replaced")

    assert (outcome.state, outcome.reason, outcome.run_at) == (State.READY, "timeout", 110.0)
    assert outcome.error == (
        "TimeoutError: ran longer than its timeout of 2.0 s; its process was replaced"
    )
    assert timed_out(task, Job(task="fails", body=b"?"), 1.0, 0.0).state is State.READY


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (JobInterrupted("cancelled"), State.CANCELLED, "cancelled"),
        (JobInterrupted("shutdown"), State.READY, "shutdown"),
        (JobInterrupted(), State.READY, "shutdown"),
    ],
)
def test_an_interrupted_job_is_cancelled_or_put_back(
    app: App, error: BaseException, state: State, reason: str
) -> None:
    task, job = raising(app, error)
    heard: list[str] = []
    app.hook("cancelled")(lambda job, _: heard.append(job.id))

    outcome = done(run(app, task, job))

    assert (outcome.state, outcome.reason) == (state, reason)
    assert (outcome.failures, outcome.lapses) == (0, 0)
    assert heard == [job.id] * (reason == "cancelled")


@pytest.mark.parametrize("body", [b"", b"\x00", b"{}", b'{"args":{"n":"x"}}', b'{"args":{"m":1}}'])
def test_a_body_that_is_no_call_of_the_task_fails_unreadable(app: App, body: bytes) -> None:
    @app.task(retry=Retry(limit=9))
    def send(n: int) -> None: ...

    outcome = done(run(app, send, Job(task=send.name, body=body)))

    assert (outcome.state, outcome.reason) == (State.FAILED, "unreadable")
    assert outcome.error is not None
    assert "send(n: int) -> None: " in outcome.error
    assert outcome.started_at is not None


def test_a_result_that_cannot_be_stored_fails_unstorable(app: App) -> None:
    @app.task(retry=Retry(limit=9))
    def send() -> int:
        return "x"

    outcome = done(run(app, send, send.job()))

    assert (outcome.state, outcome.reason) == (State.FAILED, "unstorable")
    assert outcome.error is not None
    assert outcome.error.startswith("result: Expected `int`, got `str`")


def test_an_annotation_that_has_no_json_form_fails_unreadable_or_unstorable(app: App) -> None:
    @app.task(name="odd")
    def odd() -> Callable[[], int]:
        return int

    @app.task(name="odder")
    def odder(n: Callable[[], int]) -> None: ...

    assert done(run(app, odd, odd.job())).reason == "unstorable"
    assert done(run(app, odder, Job(task="odder"))).reason == "unreadable"


def test_a_refusal_of_the_users_own_is_an_ordinary_error(app: App) -> None:
    task, job = raising(app, Refused("not today"), retry=Retry(limit=1))

    assert done(run(app, task, job)).state is State.READY


def test_a_traceback_is_cut_from_the_front(app: App) -> None:
    task, job = raising(app, ValueError("x" * LONGEST_TRACEBACK + "the end"))

    error = done(run(app, task, job)).error

    assert error is not None
    assert error.startswith("ValueError: xxx")
    assert "…\n\n...\nxxx" in error
    assert error.endswith("the end")
    assert len(error.encode()) <= LONGEST_TRACEBACK


def test_causes_and_groups_are_in_the_traceback(app: App) -> None:
    @app.task
    def fails() -> None:
        try:
            raise OSError("first")
        except OSError as error:
            raise ExceptionGroup("several", [ValueError("inner")]) from error

    text = done(run(app, fails, fails.job())).error or ""

    assert "OSError: first" in text
    assert "ValueError: inner" in text


def test_the_task_may_have_been_renamed(app: App) -> None:
    @app.task(name="mail:send", aliases=("mail:post",))
    def send(n: int) -> int:
        return n

    job = Job[Any](task="mail:post", body=b'{"args":{"n":1}}')

    assert done(run(app, send, job)).result == b"1"


def test_middleware_wraps_the_call_first_registered_outermost(app: App) -> None:
    seen: list[str] = []

    @app.middleware
    def outer(call_next: Any, job: Job[Any]) -> Any:
        seen.append(f"outer {current_job().id == job.id}")
        return call_next() + 1

    @app.middleware
    def inner(call_next: Any, job: Job[Any]) -> Any:
        seen.append("inner")
        return call_next() * 10

    @app.middleware
    async def waiting(call_next: Any, job: Job[Any]) -> Any:
        seen.append("waiting")
        return await call_next()

    @app.task
    def one() -> int:
        return 1

    @app.task
    async def two() -> int:
        return 2

    assert done(run(app, one, one.job())).result == b"11"
    assert done(asyncio.run(run_async(app, two, two.job()))).result == b"2"
    assert seen == ["outer True", "inner", "waiting"]


def test_middleware_that_raises_fails_the_job(app: App) -> None:
    @app.middleware
    def broken(call_next: Any, job: Job[Any]) -> Any:
        raise OSError("broken")

    @app.task
    def one() -> int:
        return 1

    assert done(run(app, one, one.job())).state is State.FAILED


def test_hooks_hear_what_happened_and_cannot_change_it(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []

    @app.hook("claimed")
    def claimed(job: Job[Any]) -> None:
        heard.append("claimed")
        raise OSError("a broken hook")

    for kind in ("succeeded", "failed", "timed_out"):

        @app.hook(kind)
        def after(job: Job[Any], outcome: Outcome, kind: str = kind) -> None:
            heard.append((kind, outcome.state))

    @app.task
    def fine() -> None: ...

    failing, failing_job = raising(app, ValueError())
    with caplog.at_level(logging.ERROR, "penstock"):
        outcome = run(app, fine, fine.job())
    run(app, failing, failing_job)
    failing.function = lambda: _raise(JobTimeout())
    run(app, failing, failing_job)

    assert done(outcome).state is State.SUCCEEDED
    assert "the hook claimed for claimed raised" in caplog.text
    assert heard == [
        "claimed",
        ("succeeded", State.SUCCEEDED),
        "claimed",
        ("failed", State.FAILED),
        "claimed",
        ("timed_out", State.FAILED),
    ]
    with pytest.raises(Refused, match="there are claimed, succeeded, failed, timed_out, crashed"):
        app.hook("started")


@pytest.mark.parametrize("kind", ["claimed", "succeeded", "failed", "cancelled"])
def test_a_hook_that_exits_changes_nothing(app: App, kind: Any) -> None:
    @app.hook(kind)
    def leave(*_: Any) -> None:
        raise SystemExit(3)

    @app.task
    def fine() -> int:
        return 1

    failing, job = raising(app, ValueError())

    assert done(run(app, fine, fine.job())).state is State.SUCCEEDED
    assert done(run(app, failing, job)).reason == "error"
    failing.function = lambda: _raise(JobInterrupted("cancelled"))
    assert done(run(app, failing, job)).state is State.CANCELLED


def _raise(error: BaseException) -> None:
    raise error


def test_an_async_task_is_awaited(app: App) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    assert done(asyncio.run(run_async(app, add, add.job(1, b=2)))).result == b"3"


@pytest.mark.parametrize(
    ("message", "state", "reason"),
    [
        ("timeout", State.FAILED, "timeout"),
        ("cancelled", State.CANCELLED, "cancelled"),
        ("shutdown", State.READY, "shutdown"),
        (None, State.READY, "shutdown"),
    ],
)
def test_an_async_task_is_told_why_it_is_cancelled(
    app: App, message: str | None, state: State, reason: str
) -> None:
    @app.task(timeout=1)
    async def wait() -> None:
        running.set()
        await asyncio.Event().wait()

    async def main() -> Outcome | None:
        task = asyncio.create_task(run_async(app, wait, wait.job()))
        await running.wait()
        task.cancel(message)
        return await task

    running = asyncio.Event()
    outcome = done(asyncio.run(main()))

    assert (outcome.state, outcome.reason) == (state, reason)


def test_a_cancellation_of_its_own_making_is_a_failure(app: App) -> None:
    @app.task
    async def careless() -> None:
        part = asyncio.create_task(asyncio.Event().wait())
        part.cancel()
        await part

    outcome = done(asyncio.run(run_async(app, careless, careless.job())))

    assert (outcome.state, outcome.reason) == (State.FAILED, "error")


def test_each_job_on_the_loop_sees_itself(app: App) -> None:
    @app.task
    async def who(n: int) -> str:
        await asyncio.to_thread(len, "")
        return current_job().id

    async def main() -> None:
        jobs = [who.job(n) for n in range(5)]
        outcomes = await asyncio.gather(*(run_async(app, who, job) for job in jobs))
        assert [done(outcome).result for outcome in outcomes] == [
            f'"{job.id}"'.encode() for job in jobs
        ]

    asyncio.run(main())


def test_a_declared_task_cannot_be_run_here(app: App) -> None:
    @app.declare("media:resize")
    def resize(n: int) -> None: ...

    outcome = done(run(app, resize, resize.job(1)))

    assert outcome.state is State.FAILED
    assert outcome.error is not None
    assert "is only declared here" in outcome.error


def test_an_outcome_says_what_was_raised_and_where(app: App) -> None:
    task, job = raising(app, ValueError("no such customer"))
    late, late_job = raising(App(broker=app.broker), JobTimeout(), timeout=5)

    fault, of_timeout = done(run(app, task, job)).fault, done(run(app, late, late_job)).fault

    assert fault is not None
    assert of_timeout is not None
    assert fault.exception == "ValueError"
    assert re.fullmatch(r".*test_run\.py:\d+ in fails", fault.place or "")
    assert of_timeout == Fault("TimeoutError", fault.place)


def test_a_secret_is_hidden_before_anything_is_cut(app: App) -> None:
    key = "-----BEGIN KEY-----\n" + "\n".join(f"{n:04x}" * 16 for n in range(400)) + "\nlast line"

    @app.task(secret=("key",), keep_messages=True)
    def sign(key: str) -> None:
        raise ExceptionGroup(f"refused {key}", [ValueError(key)])

    error = done(run(app, sign, sign.job(key))).error or ""

    assert error.startswith("ExceptionGroup: refused ***")
    assert not [line for line in key.splitlines() if line in error]


def test_what_a_hook_raises_tells_no_secret(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(secret=("card",))
    def charge(card: str) -> None:
        raise ValueError(f"{card} is refused")

    def hook(job: Job[Any], outcome: Outcome) -> None:
        raise RuntimeError("a hook fails")

    app.hook("failed")(hook)

    run(app, charge, charge.job("4242424242"))

    assert "the hook hook for failed raised: RuntimeError at " in caplog.text
    assert "4242424242" not in caplog.text
