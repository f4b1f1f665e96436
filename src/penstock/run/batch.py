"""Runs one attempt at each of several jobs of a batch task, in one call of its function.

Each job begins, is looked at and ends as if it ran by itself: only the call is shared. An entry of
what it returns is the end of one job. What it raises says nothing about who is to blame, so it is
the end of every one of them, and the next time each is called alone.

Middleware wraps each job, one inside of the other, around the one call: it sees its own job's value
or exception, and a job that it does not let through is left out of the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.enqueue.codec import JobOptions
from penstock.enqueue.secrets import redact_text
from penstock.job import Job, Outcome
from penstock.run.attempt import (
    LastLook,
    call_through,
    decode_call,
    meaning_of_cancellation,
    outcome_of_error,
    outcome_of_value,
)
from penstock.run.current import CURRENT, CurrentJob, gathered
from penstock.run.describe_error import Described, hides_messages, unsaid
from penstock.run.fill_outputs import filled, has_room
from penstock.task.batch import BatchTask, entries_of

if TYPE_CHECKING:
    from penstock.app.app import App

_FRAMES = 600  # that middleware may put on the stack: Python stops at 1,000
_FRAMES_PER_JOB = 4  # beside its middleware


def most_together(app: App, task: BatchTask[Any, Any]) -> int:
    """How many jobs one call may take: with middleware, which nests, fewer than a large `size`."""
    layers = len(app.async_middlewares if task.mode == "async" else app.middlewares)
    return min(task.size, _FRAMES // (_FRAMES_PER_JOB + layers)) if layers else task.size


def run_together(
    app: App,
    task: BatchTask[Any, Any],
    jobs: Sequence[Job[Any]],
    last_look: LastLook | None = None,
) -> list[Outcome | None]:
    """Call the task's function for these jobs and say where each attempt leads. Never raises.

    `last_look` is asked about each of them when all is ready for the call, see `run`.
    """
    batch = _Batch(app, task, jobs)
    token = CURRENT.set(batch.members[0].current)
    try:
        for member in batch.members:
            if has_room(member.job.body):
                member.fill(app)
            member.begin(app, task)
        resources = app.resources.fill(task.resources) if task.resources else {}
        batch.check_starts(last_look)
        if app.middlewares:
            _call_inside_middleware(batch, 0, resources)
        elif batch.admit_all():
            _call(batch, resources)
        return batch.outcomes()
    except BaseException as error:
        batch.fail(error)
        return batch.outcomes()
    finally:
        CURRENT.reset(token)


async def run_together_async(
    app: App,
    task: BatchTask[Any, Any],
    jobs: Sequence[Job[Any]],
    last_look: LastLook | None = None,
) -> list[Outcome | None]:
    """As `run_together`, for an `async def` function, on the running loop; see `run_async`."""
    import asyncio

    batch = _Batch(app, task, jobs)
    token = CURRENT.set(batch.members[0].current)
    try:
        for member in batch.members:
            if has_room(member.job.body):
                await asyncio.to_thread(member.fill, app)
            member.begin(app, task)
        resources = await app.resources.fill_async(task.resources) if task.resources else {}
        batch.check_starts(last_look)
        if app.async_middlewares:
            await _call_inside_middleware_async(batch, 0, resources)
        elif batch.admit_all():
            await _call_async(batch, resources)
        return batch.outcomes()
    except asyncio.CancelledError as error:
        batch.fail(meaning_of_cancellation(error))
        return batch.outcomes()
    except BaseException as error:
        batch.fail(error)
        return batch.outcomes()
    finally:
        CURRENT.reset(token)


class _Member:
    """One job of the batch."""

    __slots__ = ("current", "ended", "entry", "item", "job", "options")

    def __init__(self, app: App, job: Job[Any], now: float) -> None:
        self.job = job
        self.current = CurrentJob(app, job, now)
        self.options = JobOptions()
        self.item: Any = None
        self.entry: Any = None  # what the call returned for it
        # What is known of its end: a value or an exception of its own, or an outcome instead.
        self.ended: tuple[Any] | BaseException | Outcome | None = None

    def fill(self, app: App) -> None:
        try:
            self.current.body = filled(app.broker, self.job)
        except Exception as error:
            self.ended = error

    def begin(self, app: App, task: BatchTask[Any, Any]) -> None:
        if self.ended is not None:
            return
        try:
            self.options, args, kwargs = decode_call(app, task, self.current)
            [self.item] = (*args, *kwargs.values())
        except Exception as error:
            self.ended = error


class _Batch:
    """The jobs of one call, and how far it came."""

    def __init__(self, app: App, task: BatchTask[Any, Any], jobs: Sequence[Job[Any]]) -> None:
        now = app.clock.now()
        self.app = app
        self.task = task
        self.members = [_Member(app, job, now) for job in jobs]
        self.admitted: list[_Member] = []
        self.error: BaseException | None = None  # of the whole call
        self._described: Described | None = None

    def fail(self, error: BaseException) -> None:
        """The call as a whole came to nothing."""
        self.error = error
        # At once: each layer of middleware that it passes through adds to its traceback.
        hidden = any(hides_messages(self.task, each.current.body) for each in self.members)
        message = unsaid(self.app, error) if hidden else None
        self._described = Described(error, self._hide, message)

    def _hide(self, text: str) -> str:
        for member in self.members:  # it may tell the secrets of any of them
            text = redact_text(text, member.current.body)
        return text

    def check_starts(self, last_look: LastLook | None) -> None:
        if last_look is not None:
            for member in self.members:
                member.ended = member.ended or last_look(member.job)

    def admit_all(self) -> bool:
        self.admitted = [member for member in self.members if member.ended is None]
        return bool(self.admitted)

    @property
    def items(self) -> list[Any]:
        return [member.item for member in self.admitted]

    def answer(self, value: Any) -> None:
        entries = entries_of(self.task.name, value, len(self.admitted))
        for member, entry in zip(self.admitted, entries, strict=True):
            member.entry = entry
            # Middleware, where there is any, has the last word.
            member.ended = entry if isinstance(entry, BaseException) else (entry,)

    def entry_of(self, member: _Member) -> Any:
        """What the call came to for one of its jobs."""
        if self.error is not None:
            raise self.error
        if isinstance(member.entry, BaseException):
            raise member.entry
        return member.entry

    def outcomes(self) -> list[Outcome | None]:
        return [self._outcome(member) for member in self.members]

    def _outcome(self, member: _Member) -> Outcome | None:
        app, task, current, ended = self.app, self.task, member.current, member.ended
        if isinstance(ended, Outcome):
            return ended
        token = CURRENT.set(current)
        try:
            if isinstance(ended, tuple):
                return outcome_of_value(app, task, current, member.options, ended[0])
            error = ended or self.error or RuntimeError("the batch was never called")
            described = self._described if error is self.error else None
            return outcome_of_error(app, task, current, error, described)
        except Exception as error:
            return outcome_of_error(app, task, current, error)
        finally:
            CURRENT.reset(token)


def _call(batch: _Batch, resources: dict[str, Any]) -> None:
    try:
        with gathered(member.current for member in batch.admitted):
            value = batch.task.many(batch.items, **resources)
        batch.answer(value)
    except Exception as error:
        batch.fail(error)


async def _call_async(batch: _Batch, resources: dict[str, Any]) -> None:
    try:
        with gathered(member.current for member in batch.admitted):
            value = await batch.task.many(batch.items, **resources)
        batch.answer(value)
    except Exception as error:
        batch.fail(error)


def _call_inside_middleware(batch: _Batch, index: int, resources: dict[str, Any]) -> None:
    """Go through the middleware of the job at this place and of all after it, to the call."""
    while index < len(batch.members) and batch.members[index].ended is not None:
        index += 1
    if index == len(batch.members):
        if batch.admitted:
            _call(batch, resources)
        return
    member, called = batch.members[index], False

    def call_next() -> Any:
        nonlocal called
        if not called:
            called = True
            batch.admitted.append(member)
            _call_inside_middleware(batch, index + 1, resources)
        return batch.entry_of(member)

    token = CURRENT.set(member.current)
    try:
        member.ended = (call_through(batch.app.middlewares, member.job, call_next),)
    except Exception as error:
        member.ended = error
    finally:
        CURRENT.reset(token)
    if not called:
        _call_inside_middleware(batch, index + 1, resources)


async def _call_inside_middleware_async(
    batch: _Batch, index: int, resources: dict[str, Any]
) -> None:
    while index < len(batch.members) and batch.members[index].ended is not None:
        index += 1
    if index == len(batch.members):
        if batch.admitted:
            await _call_async(batch, resources)
        return
    member, called = batch.members[index], False

    async def call_next() -> Any:
        nonlocal called
        if not called:
            called = True
            batch.admitted.append(member)
            await _call_inside_middleware_async(batch, index + 1, resources)
        return batch.entry_of(member)

    token = CURRENT.set(member.current)
    try:
        member.ended = (await call_through(batch.app.async_middlewares, member.job, call_next),)
    except Exception as error:
        member.ended = error
    finally:
        CURRENT.reset(token)
    if not called:
        await _call_inside_middleware_async(batch, index + 1, resources)
