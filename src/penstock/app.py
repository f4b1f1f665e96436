"""App: the tasks of a program, and the store that their jobs go to.

Making one opens nothing; the store is opened by the first call that needs it, and again in each
process that a fork makes. Everything a process holds open hangs on its App: broker, coalescer,
resources.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from penstock.broker import Broker, Enqueued
from penstock.brokers import open_broker
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.coalesce import Coalescer, ToStore, may_wait
from penstock.compose import Jobs, flow_of
from penstock.current import refuse_inside_transaction
from penstock.errors import Refused, UnknownOutcome
from penstock.flow import Flow, OnFailure
from penstock.handle import Handle
from penstock.ids import Ids, parse_id
from penstock.job import Job, Parcel
from penstock.joining import join_async
from penstock.prepare import check_name
from penstock.resource import Resources
from penstock.retry import Retry, Strategy
from penstock.rule import Rule, limit_rule
from penstock.schedules import Schedules
from penstock.settings import ResolvedUrl, calling_file, mask, resolve_url
from penstock.signature import check_function, visible_names
from penstock.task import AsyncTask, PlainTask, Task, stub

if TYPE_CHECKING:
    from penstock.testing import Testing

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

Hook = Literal["claimed", "succeeded", "failed", "timed_out"]
_HOOKS = ("claimed", "succeeded", "failed", "timed_out")

# What a fork inherits must be neither used nor closed in the child: it stays referenced here.
_inherited: list[Any] = []
_apps: weakref.WeakSet[App] = weakref.WeakSet()


class TaskMaker(Protocol):
    """`@app.task(...)` with options: makes a Task of the function below it."""

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]  the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class App:
    """The tasks of a program, and where their jobs are stored.

    Without a URL: PENSTOCK_URL, else the profile in penstock.toml, else `penstock.db` beside the
    project of the file that makes the App. Opens nothing until used.
    """

    def __init__(
        self, url: str | None = None, *, broker: Broker | None = None, clock: Clock | None = None
    ) -> None:
        if url is not None and broker is not None:
            raise Refused(
                "App(url, broker=...): a URL and a broker both say where; give one of them"
            )
        self._url = url
        self._beside: Path | None = calling_file()
        self._given = broker
        self._broker: Broker | None = broker
        self._own_clock = clock  # None: the store's
        self._clock = clock or (SYSTEM_CLOCK if broker is None else broker.clock)
        self._lock = threading.Lock()
        self._coalescer = Coalescer(self._send)
        self._queues: dict[str, dict[str, bool]] = {}
        self.tasks: dict[str, Task[..., Any]] = {}
        self._aliases: dict[str, Task[..., Any]] = {}
        self.schedules = Schedules(self)
        self.schedule = self.schedules.decorate
        self.resources = Resources()
        self.ids: Ids = Ids(self._clock)
        self.hooks: dict[str, tuple[Callable[..., Any], ...]] = {}
        self.middlewares: tuple[Callable[..., Any], ...] = ()
        self.async_middlewares: tuple[Callable[..., Any], ...] = ()
        self.enqueue_hooks: tuple[Callable[..., Any], ...] = ()
        _apps.add(self)

    def __repr__(self) -> str:
        return f"<app with {len(self.tasks)} tasks>"

    # The store

    @property
    def resolved_url(self) -> ResolvedUrl:
        """The store's URL, and where it came from; for people, mask it."""
        return resolve_url(self._url, self._beside)

    @property
    def broker(self) -> Broker:
        """The store, opened now if it was not yet."""
        broker = self._broker
        if broker is None:
            with self._lock:
                broker = self._broker
                if broker is None:
                    broker = open_broker(self.resolved_url.url, self._own_clock)
                    broker.relaxed = self._relaxed()
                    self._clock, self.ids = broker.clock, Ids(broker.clock)
                    self._broker = broker
        return broker

    @property
    def clock(self) -> Clock:
        """The store's clock, as far as this process can tell without opening the store."""
        broker = self._broker
        return self._clock if broker is None else broker.clock

    def broker_for(self, connection: Any) -> tuple[Broker, Any]:
        """The broker, and the connection to join, if there is one."""
        connection = self.connection_for(connection)
        if connection is not None:
            return self.broker, connection
        refuse_inside_transaction("enqueue")
        return self.broker, None

    def connection_for(self, given: Any) -> Any:
        """The connection whose transaction an enqueue joins; an integration may know of one."""
        return given

    @contextmanager
    def replace_broker(self, broker: Broker) -> Generator[None]:
        """Use this broker, and its clock, instead; for tests."""
        before = (self._broker, self._given, self._clock, self.ids)
        self._broker = self._given = broker
        self._clock, self.ids = broker.clock, Ids(broker.clock)
        try:
            yield
        finally:
            self._broker, self._given, self._clock, self.ids = before

    def close(self) -> None:
        """Close resources and the store; a later call opens them again."""
        self.resources.close()
        with self._lock:
            broker, self._broker = self._broker, self._given
        if broker is not None and broker is not self._given:
            broker.close()

    def _after_fork(self) -> None:
        _inherited.append((self._broker, self.resources))
        self._lock = threading.Lock()
        self._broker = self._given
        self._coalescer = Coalescer(self._send)
        self.resources = self.resources.emptied()

    # Tasks

    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]  the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        mode: Literal["thread", "process"] | None = None,
        version: int = 1,
        aliases: Collection[str] = (),
        runs_on: Collection[str] = (),
        search: Collection[str] = (),
        secret: Collection[str] = (),
        keep: float | timedelta | None = None,
        at_most_once: bool = False,
        on_success: Strategy = "keep",
        on_error: Strategy = "keep",
        on_timeout: Strategy | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> TaskMaker: ...
    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", timeout=60)`.

        `retry` answers exceptions; what is left goes to `on_error`, a timeout to `on_timeout`
        (without one it is an error). `version` counts up when arguments change meaning: a worker is
        handed no newer job than it knows. `aliases` are names that the task had before. `runs_on`
        are worker tags it requires. `search` names argument fields that `find` has indexed, and
        `secret` arguments that are never logged or shown. `at_most_once`: a crash ends it for good.
        """
        if function is not None:
            return self._make(function, _caller(), options)
        return self._maker(options)

    def declare(
        self,
        name: str,
        *,
        queue: str = "default",
        priority: int = 0,
        version: int = 1,
        runs_on: Collection[str] = (),
        search: Collection[str] = (),
        secret: Collection[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> TaskMaker:
        """Over a typed stub: a task whose code lives elsewhere; enqueued, not run, here."""
        options = {
            "name": name,
            "queue": queue,
            "priority": priority,
            "version": version,
            "runs_on": runs_on,
            "search": search,
            "secret": secret,
            "tags": tags,
            "declared": True,
        }
        return cast("TaskMaker", self._maker(options))

    def _maker(self, options: dict[str, Any]) -> Callable[[Any], Task[..., Any]]:
        def make(function: Any) -> Task[..., Any]:
            return self._make(function, _caller(), options)

        return make

    def _make(self, function: Any, frame: Any, options: dict[str, Any]) -> Task[..., Any]:
        check_function(function)
        written = function
        kind: Any = AsyncTask if inspect.iscoroutinefunction(function) else PlainTask
        names = visible_names(function, frame)
        if options.get("declared"):
            function = stub(options["name"], function)
        task: Task[..., Any] = kind(self, function, names=names, **options)
        self._register(task)
        self.schedules.adopt(written, task)
        return task

    def _register(self, task: Task[..., Any]) -> None:
        for name in (task.name, *task.aliases):
            other = self.task_named(name)
            if other is not None and _origin(other) != _origin(task):
                raise Refused(
                    f"two tasks are called {name}: {_origin(other)} and {_origin(task)};"
                    " give one of them another name=..."
                )
        self.tasks[task.name] = task
        self._aliases.update(dict.fromkeys(task.aliases, task))

    def task_named(self, name: str) -> Task[..., Any] | None:
        """The task of this name, or one that once had it; None if there is none."""
        return self.tasks.get(name) or self._aliases.get(name)

    def known_tasks(self) -> dict[str, int]:
        """What a worker of this app can run: names, aliases too, each with its version."""
        known = {**self._aliases, **self.tasks}
        return {name: task.version for name, task in known.items() if not task.declared}

    # Jobs

    def enqueue(
        self,
        jobs: Iterable[Job[Any] | Jobs[Any] | Parcel],
        *,
        connection: Any = None,
        on_failure: OnFailure = "cancel",
    ) -> list[Handle[Any]]:
        """Store all of these jobs and every job that they need, or none; a handle for each.

        `on_failure` is for those in a flow, see `Job.enqueue`.
        """
        named = _checked(jobs)
        flow, stored, listed = _gathered(named, on_failure)
        broker, joined = self.broker_for(connection)
        if flow is not None:
            with _told_as(named, flow):
                answer = broker.enqueue(stored, connection=joined, flow=flow)
        elif joined is not None:
            answer = broker.enqueue(stored, connection=joined)
        elif may_wait(stored):
            answer = broker.enqueue(stored)
        else:
            answer = self._coalescer.enqueue(stored)
        return self._handles(listed, answer)

    async def enqueue_async(
        self,
        jobs: Iterable[Job[Any] | Jobs[Any] | Parcel],
        *,
        connection: Any = None,
        on_failure: OnFailure = "cancel",
    ) -> list[Handle[Any]]:
        """As `enqueue`, without holding up the event loop; a connection must be asynchronous."""
        named = _checked(jobs)
        flow, stored, listed = _gathered(named, on_failure)
        if connection is not None:
            broker = self._broker or await asyncio.to_thread(lambda: self.broker)
            with _told_as(named, flow):
                return self._handles(listed, await join_async(broker, connection, stored, flow))
        refuse_inside_transaction("enqueue_async")
        if flow is not None or may_wait(stored):
            with _told_as(named, flow):
                return self._handles(listed, await asyncio.to_thread(self._send, stored, flow))
        return self._handles(listed, await self._coalescer.enqueue_async(stored))

    def _send(self, jobs: ToStore, flow: Flow | None = None) -> Enqueued:
        return self.broker.enqueue(jobs) if flow is None else self.broker.enqueue(jobs, flow=flow)

    def _handles(self, jobs: ToStore, answer: Enqueued) -> list[Handle[Any]]:
        standing = answer.standing
        return [
            Handle(self, standing.get(id, id), stored=id not in standing)
            for job in jobs
            for id in (job.ids() if isinstance(job, Parcel) else (job.id,))
        ]

    def handle(self, id: str) -> Handle[Any]:
        """The handle of a job that was stored before, here or anywhere."""
        return Handle(self, parse_id(id))

    # Around the calls

    def hook(self, kind: Hook) -> Callable[[F], F]:
        """Call the function when a job was "claimed", "succeeded", "failed" or "timed_out".

        It gets the job, and after an attempt the outcome: `outcome.state` says whether the job will
        run again. What it raises is logged, and changes nothing.
        """
        if kind not in _HOOKS:
            raise Refused(f"hook({kind!r}): there are {', '.join(_HOOKS)}")

        def add(function: F) -> F:
            self.hooks = {**self.hooks, kind: (*self.hooks.get(kind, ()), function)}
            return function

        return add

    def middleware(self, function: F) -> F:
        """Wrap every call: `function(call_next, job)` returns `call_next()`, or does otherwise.

        A plain function wraps plain tasks; an `async def` one wraps `async def` tasks and awaits
        `call_next()`. The first one registered is the outermost. `current_job()` is there.
        """
        if inspect.iscoroutinefunction(function):
            self.async_middlewares = (*self.async_middlewares, function)
        else:
            self.middlewares = (*self.middlewares, function)
        return function

    def on_enqueue(self, function: F) -> F:
        """Call `function(headers, task)` whenever jobs are made, once per `enqueue_many`.

        It may add headers, such as a tenant or a trace id, that the job then finds in
        `current_job().headers`.
        """
        self.enqueue_hooks = (*self.enqueue_hooks, function)
        return function

    def queue(self, name: str, *, relaxed: bool = False, fair: bool = False) -> str:
        """Register a queue with its options; registering it differently is refused.

        `relaxed`: enqueue and settle do not wait for the disk; see the guarantees for what that
        may cost.
        """
        check_name("queue", name)
        if fair:
            raise Refused(f"queue {name}: fair=True is not available yet; it comes with limits")
        options = {"relaxed": relaxed, "fair": fair}
        registered = self._queues.setdefault(name, options)
        if registered != options:
            raise Refused(f"queue {name} is registered with {registered}, and now with {options}")
        if self._broker is not None:
            self._broker.relaxed = self._relaxed()
        return name

    def limit(
        self,
        queue: str | None = None,
        *,
        task: Task[..., Any] | str | None = None,
        running: int | None = None,
        rate: str | tuple[int, float] | None = None,
        per_key: bool = False,
        author: str = "",
        reason: str = "",
    ) -> Rule:
        """Limit a queue, a task or both in the store, over all workers together, from now on.

        At most `running` at a time, and at most so many starts as `rate` says ("10/s", "100/min",
        or (jobs, seconds)) in any window of that length; `per_key`: each key on its own. Set again
        it takes the other's place. It stays until it is taken back: `penstock limit QUEUE --off`.
        """
        bounds = {"running": running, "rate": rate, "per_key": per_key}
        name = task.name if isinstance(task, Task) else task
        return self.broker.set_rule(limit_rule(queue, name, author, reason, **bounds))

    def _relaxed(self) -> frozenset[str]:
        return frozenset(name for name, options in self._queues.items() if options["relaxed"])

    def replace(self, factory: Callable[[], Any], value: Any) -> AbstractContextManager[None]:
        """In tests: hand out `value` where tasks `use(factory)`."""
        return self.resources.replace(factory, value)

    def testing(self, **options: Any) -> Testing:
        """`with app.testing() as t:` swaps the store for one in memory; see penstock.testing."""
        from penstock.testing import Testing

        return Testing(self, **options)

    def describe(self) -> str:
        """Where the jobs go and who said so, fit to be shown."""
        if self._given is not None:
            return f"{type(self._given).__name__} (given to the App)"
        resolved = self.resolved_url
        return f"{mask(resolved.url)} ({resolved.source})"


def _caller() -> Any:
    return sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  to see the names around a nested task


def _origin(task: Task[..., Any]) -> str:
    code = task.function if not task.declared else task.__wrapped__
    return f"{code.__module__}.{code.__qualname__}"


Named = list[Job[Any] | Jobs[Any] | Parcel]


def _gathered(
    named: Named, on_failure: OnFailure
) -> tuple[Flow | None, list[Job[Any] | Parcel], list[Job[Any] | Parcel]]:
    """The flow, if it is one; what is stored; and for what of it there is a handle."""
    listed: list[Job[Any] | Parcel] = []
    joined = False
    for job in named:
        if isinstance(job, Jobs):
            listed += job.parts
        else:
            listed.append(job)
        joined = joined or (not isinstance(job, Parcel) and job.given is not None)
    if not joined:
        return None, listed, listed
    stored, flow = flow_of(named, on_failure)
    return flow, stored, listed


@contextmanager
def _told_as(named: Named, flow: Flow | None) -> Generator[None]:
    """Of a flow whose answer was lost the jobs are told as they were named: they can be sent again.

    As they were stored they would lack what joins them.
    """
    try:
        yield
    except UnknownOutcome as error:
        if flow is None:
            raise
        raise UnknownOutcome(str(error), named) from error


def _checked(jobs: Iterable[Job[Any] | Jobs[Any] | Parcel]) -> Named:
    if isinstance(jobs, (Job, Jobs, Parcel)) or not isinstance(jobs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
        raise Refused(
            f"enqueue takes a list of jobs, as app.enqueue([task.job(...)]), not {jobs!r}"
        )
    checked = list(jobs)
    for job in checked:
        if not isinstance(job, (Job, Jobs, Parcel)):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
            raise Refused(f"enqueue takes jobs, made by task.job(...), not {job!r}")
    return checked


def _after_fork() -> None:
    for app in list(_apps):
        app._after_fork()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
