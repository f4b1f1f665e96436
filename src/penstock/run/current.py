"""The job that is running, as its own task sees it.

It travels in a context variable: threads of the worker and tasks of its event loop each see theirs.
Whatever it writes is fenced; a write that the store refuses raises StaleLease, and the task should
let it pass: somebody else is running the job.
"""

from __future__ import annotations

import inspect
import logging
import math
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from penstock.broker.checks import legible
from penstock.broker.traits import begins
from penstock.broker.values import Transaction
from penstock.broker.views import Note
from penstock.enqueue.codec import ResultCodec, decode_value, encode_value
from penstock.enqueue.ids import bucket_of
from penstock.errors import Refused
from penstock.flows.compose import Group, Jobs, Spawn, spawnable
from penstock.flows.flow import WAIT_TASK, member_of
from penstock.job import Job
from penstock.run.current_flow import CurrentFlow
from penstock.run.job_notes import LogLine, Notebook, Progress
from penstock.run.wait_for_jobs import EndedJob, Waits, wait_for_jobs
from penstock.task.signature import hints_of

if TYPE_CHECKING:
    from penstock.app.app import App

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_LINE = 8 * 1024
_NO_HEADERS: Mapping[str, str] = {}
_logger = logging.getLogger("penstock.job")


def current_job() -> CurrentJob:
    """The job that this code runs for; outside of a task there is none, and that is an error."""
    current = CURRENT.get()
    if current is None:
        raise RuntimeError(
            "current_job(): no job is running here; it is there only inside a task that a worker"
            " runs (a plain call of the task is not a job)"
        )
    if BATCH.get():
        raise RuntimeError(
            "current_job(): this call is for a batch of jobs; current_jobs() has one for each item"
        )
    return current


def current_jobs() -> list[CurrentJob]:
    """The jobs that this call of a batch task is for, in the order of its items."""
    return list(BATCH.get()) or [current_job()]


class CurrentJob:
    """One attempt at a job, from inside."""

    __slots__ = (
        "_app",
        "_notebook",
        "body",
        "headers",
        "job",
        "open_transaction",
        "reports_progress",
        "span",
        "spawns",
        "started_at",
        "tried",
        "waits",
    )

    span: Any  # where it is traced, and only then: the context that it runs in

    def __init__(self, app: App, job: Job[Any], started_at: float) -> None:
        self._app = app
        self._notebook: Notebook | None = None
        self.open_transaction: Transaction | None = None
        self.job = job
        self.body = job.body  # as it runs: with the outputs of other jobs in their places
        self.started_at = started_at
        self.headers = _NO_HEADERS
        self.spawns: tuple[Spawn, ...] = ()
        self.reports_progress = False  # the task calls progress() itself
        self.tried = False  # transaction() was used in this attempt
        self.waits: Waits | None = None  # it stops here, for jobs that it waits for

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def attempt(self) -> int:
        """How often the job was claimed so far, this time included."""
        return self.job.attempt

    @property
    def key(self) -> str | None:
        return self.job.key

    @property
    def tags(self) -> Mapping[str, str]:
        return self.job.tags

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.job.task

    def idempotency_key(self, step: str = "") -> str:
        """The same text in every attempt at this job, for services that do a thing once per key.

        `step` tells several such calls of one task apart. A run that a Repeat asks for differs.
        """
        parts = (self.job.id, str(self.job.repeats) if self.job.repeats else "", step)
        return ":".join(part for part in parts if part)

    @property
    def notebook(self) -> Notebook:
        if self._notebook is None:
            self._notebook = Notebook(lambda: self._app.broker, self.job, self.ask)
        return self._notebook

    def ask(self, question: Callable[[], T]) -> T:
        """The store's answer. A call may be sent twice: see app.store_retry."""
        return self._app.patience.ask(question, self.deadline())

    def deadline(self) -> float:
        """When its timeout ends, in monotonic seconds, if it blocks its event loop; else never.

        A thread is interrupted from outside.
        """
        task = self._app.task_named(self.job.task) if _on_event_loop() else None
        timeout = None if task is None else task.timeout_of(self.job)
        if timeout is None:
            return math.inf
        return time.monotonic() + self.started_at + timeout - self._app.clock.now()

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far it got, 0 to 1, as often as you like: the store hears it twice a second."""
        if not 0 <= fraction <= 1:
            raise Refused(f"progress({fraction!r}): a fraction from 0 to 1, 0.5 is half of it")
        self.reports_progress = True
        self.notebook.progress(Progress(float(fraction), note, self._app.clock.now()))

    def snapshot(self, value: object) -> None:
        """Keep where it got to, for the next attempt; the last one replaces those before."""
        self.notebook.write("snapshot", "", encode_value(value, "snapshot"))

    @overload
    def last_snapshot(self) -> Any: ...
    @overload
    def last_snapshot(self, type: type[T]) -> T | None: ...
    def last_snapshot(self, type: Any = None) -> Any:  # noqa: A002  the word that a caller expects
        """What `snapshot` kept last, in this attempt or one before; None if there is nothing."""
        notes = self._notes("snapshot")
        return decode_value(notes[-1].value, Any if type is None else type) if notes else None

    @overload
    def step(
        self,
        name: str,
        fn: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do a part of the task once: later attempts get the remembered value and do not call `fn`.

        The value is kept as JSON by the annotation of what `fn` returns, and the first attempt
        too gets it as it comes back from there. With an `async def` function, await the step.
        """
        codec = ResultCodec(_returned_by(fn), f"step {name}")
        name = legible(name)  # as the note is stored
        for note in self._notes("step"):
            if note.name == name:
                value = codec.decode(note.value)
                return _at_once(value) if inspect.iscoroutinefunction(fn) else value
        if inspect.iscoroutinefunction(fn):
            return self._step_async(name, codec, fn(*args, **kwargs))
        return self._remember(name, codec, fn(*args, **kwargs))

    def _notes(self, kind: str) -> list[Note]:
        return self.ask(lambda: self._app.broker.notes(self.job.id, kind))

    async def _step_async(
        self, name: str, codec: ResultCodec, value: Coroutine[Any, Any, Any]
    ) -> Any:
        return self._remember(name, codec, await value)

    def _remember(self, name: str, codec: ResultCodec, value: Any) -> Any:
        encoded = codec.encode(value)
        self.notebook.write("step", name, encoded)
        return codec.decode(encoded)

    def event(self, kind: str, **data: object) -> None:
        """Write a line of your own into the history."""
        self.notebook.write("event", kind, encode_value(data, f"event {kind}"))

    def spawn(
        self,
        jobs: Job[Any] | Jobs[Any] | Group[Any] | Iterable[Job[Any] | Jobs[Any]],
        then: Job[Any] | None = None,
    ) -> None:
        """Have these jobs stored in the same transaction as this one's success, or never.

        `then` runs once they have ended. In a flow, whoever needs this job waits for all of them
        and for `then` as well. Nothing waits here: the task goes on, and returns.
        """
        if then is not None and then.task == WAIT_TASK:
            raise Refused(
                "spawn(then=wait_for(...)): it waits from when it is stored, so spawn it beside "
                "the others, and let `then` be the job that is handed its output"
            )
        spawn = Spawn(spawnable(jobs), None if then is None else spawnable(then)[0])
        # Stored in one transaction with the end of this job, and so in its bucket.
        named = [*spawn.jobs, *spawnable(() if then is None else then)]
        self._app.make_final(named, bucket=bucket_of(self.job.id))
        self.spawns += (spawn,)

    def wait_for_jobs(
        self, name: str, jobs: Job[T] | Jobs[T] | Group[T] | Iterable[Job[T] | Jobs[T]]
    ) -> list[EndedJob[T]]:
        """Queue these jobs, once, and run again from the beginning when all of them have ended.

        Until then nothing of this job runs: the call ends the attempt, its process or thread is
        free, and `except Exception` does not catch that. The attempt that comes after gets the jobs
        as they ended, in their order, and so do all later ones: like a step, by its name.
        """
        if BATCH.get():
            raise Refused("wait_for_jobs(): a batch waits for nothing; make it a task of one job")
        return wait_for_jobs(self._app, self, name, jobs)

    @property
    def flow(self) -> CurrentFlow:
        """The flow that the job is in, with the state that its members share."""
        member = member_of(self.job.body)
        if member is None:
            raise RuntimeError(
                f"job {self.job.id} is in no flow: enqueue it by app.flow(...).enqueue(job), or let"
                " another job need it"
            )
        return CurrentFlow(self._app, member.id, self.notebook, self.ask)

    @property
    def log(self) -> JobLog:
        """Lines that are kept with the job, and go to the logger `penstock.job` as well."""
        return JobLog(self, _logger)

    @contextmanager
    def transaction(self) -> Generator[Any]:
        """A connection to the broker's own database; effects and the job's end commit together.

        Make it the last thing in the task: from here until the task function returns, what it wrote
        is locked, which on SQLite is the whole file. The commit happens when the function has
        returned; if it raises, or this attempt no longer holds the job, nothing was written. Once
        per attempt. To enqueue from inside, hand it on: `task.options(connection=...)`. Lines
        logged from here on reach the logger, but are not kept with the job once it has committed.
        """
        if BATCH.get():
            raise Refused(
                "transaction(): a batch settles many jobs, and each would need a transaction of its"
                " own; make it a task of one job"
            )
        if self.tried:
            raise RuntimeError("transaction(): once per attempt; put both parts into one block")
        self.ask(self.notebook.hold)
        try:
            transaction = self.open_transaction = self.ask(begins(self._app.broker).begin)
        except BaseException:
            self.notebook.release()
            raise
        self.tried = True
        try:
            yield transaction.connection
        except BaseException as error:
            if transaction.broken_by(error):
                self._app.patience.mark(error)
            self.roll_back()
            raise

    def roll_back(self) -> None:
        """Undo what an open transaction wrote, and let go of the store."""
        transaction, self.open_transaction = self.open_transaction, None
        if transaction is not None:
            self.notebook.release()
            transaction.rollback()

    def close(self) -> None:
        """Write what was gathered; what the store does not take any more is only logged."""
        if self._notebook is not None and self._notebook.gathered:
            try:
                self._notebook.flush()
            except Exception as error:
                _logger.warning("job %s: its last notes were not kept: %s", self.job.id, error)


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines are kept with the job, whatever level logging is set to."""

    def __init__(self, current: CurrentJob, logger: logging.Logger) -> None:
        super().__init__(logger, {"job": current.id, "task": current.task})
        self._current = current

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        text = _line_of(level, msg, args, kwargs.get("exc_info"))
        now = self._current._app.clock.now()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  two halves of one thing
        self._current.notebook.line(
            LogLine(now, logging.getLevelName(level).lower(), text[:LONGEST_LINE])
        )
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().log(level, msg, *args, **kwargs)


def _line_of(level: int, msg: object, args: tuple[Any, ...], exc_info: Any) -> str:
    record = logging.LogRecord("penstock.job", level, "", 0, msg, args, None)
    try:
        text = record.getMessage()
    except Exception:  # as logging does: a line that cannot be formatted must not fail the job
        text = f"{msg} {args!r}"
    error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]
    if exc_info and error is not None:
        text = f"{text}\n{''.join(traceback.format_exception(error)).rstrip()}"
    return text


def _returned_by(function: Callable[..., Any]) -> Any:
    try:
        return hints_of(function, {}, ("return",)).get("return", Any)
    except (Refused, TypeError):
        return Any  # a lambda, a partial, a builtin


def _on_event_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _at_once(value: T) -> T:
    return value


CURRENT: ContextVar[CurrentJob | None] = ContextVar("penstock_current_job", default=None)
BATCH: ContextVar[tuple[CurrentJob, ...]] = ContextVar("penstock_current_jobs", default=())


@contextmanager
def gathered(currents: Iterable[CurrentJob]) -> Generator[None]:
    """Around a call that is made for these jobs together."""
    token = BATCH.set(tuple(currents))
    try:
        yield
    finally:
        BATCH.reset(token)


def refuse_inside_transaction(what: str) -> None:
    """Stop a call that would wait for a lock which this very job holds."""
    current = CURRENT.get()
    if current is not None and current.open_transaction is not None:
        raise Refused(
            f"{what}: this job's transaction() is open, and on SQLite holds the store's write lock;"
            " use task.options(connection=...) with its connection, or do it before the block"
        )
