"""App: the tasks of a program, and the store that their jobs go to.

Making one opens nothing; the store is opened by the first call that needs it, and again in each
process that a fork makes. Everything a process holds open hangs on its App: broker, coalescer,
resources.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from penstock.app.clock import GUESSED_CLOCK, AnyClock, RemoteClock
from penstock.app.code_digest import code_digest
from penstock.app.encrypted_broker import encrypted
from penstock.app.end_hooks import EndHooks
from penstock.app.flows import AppFlows
from penstock.app.key_file import find_keys
from penstock.app.queue_options import DeclaredQueues, options_of, required_of
from penstock.app.reads import AppReads
from penstock.app.registry import Registry
from penstock.app.resources import Resources
from penstock.app.settings import (
    ResolvedUrl,
    calling_file,
    mask,
    project_root,
    resolve_app_name,
    resolve_url,
)
from penstock.app.store_retry import Patience
from penstock.app.topics import AppTopics, Topics
from penstock.broker.protocol import Broker
from penstock.broker.values import Enqueued
from penstock.brokers import open_broker
from penstock.enqueue.caller_connection import join_async
from penstock.enqueue.coalesce import Coalescer, Sending, ToStore, has_unique_key
from penstock.enqueue.codec import encode_value
from penstock.enqueue.handle import Handle
from penstock.enqueue.ids import Ids, parse_id
from penstock.enqueue.provisional import guessed_clock_error, make_final
from penstock.enqueue.tracing import switched_on, trace
from penstock.errors import Refused
from penstock.flows.compose import Jobs, named_jobs, resent_as, to_store
from penstock.flows.flow import Flow, OnFailure
from penstock.flows.named import NamedFlow
from penstock.flows.signals import check_signal, with_deadlines
from penstock.flows.state_codec import StateCodec
from penstock.job import Job, Parcel
from penstock.rules.limits import limit_rule
from penstock.rules.rule import Rule
from penstock.run.current import CURRENT, refuse_inside_transaction
from penstock.run.inherited_tags import inherited_tags
from penstock.schedules.registered import Schedules
from penstock.task.option_checks import check_crash_budget, check_identifier
from penstock.task.option_types import QueueDeclaration
from penstock.task.task import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.app.key_ring import KeyRing
    from penstock.testing import Testing

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
J = TypeVar("J", bound=Job[Any] | Parcel)
F = TypeVar("F", bound=Callable[..., Any])

# What a fork inherits must be neither used nor closed in the child: it stays referenced here.
_inherited: list[Any] = []
_HOOK_SECONDS = 5.0  # that `close` waits for hooks
_apps: weakref.WeakSet[App] = weakref.WeakSet()


class App(Registry, AppFlows, AppReads, AppTopics):
    """The tasks of a program, and where their jobs are stored.

    Without a URL: PENSTOCK_URL, else the profile in penstock.toml, else `penstock.db` in the
    project of the file that makes the App. Opens nothing until used.

    Programs of different `name` may share a store and never run each other's jobs. Without one:
    PENSTOCK_APP_NAME, else `app_name` in penstock.toml, else "", which all unnamed programs share.

    `keys` encrypts what is stored. Without it: PENSTOCK_KEY_FILE, else `key_file` of the profile.
    `crash_budget`: how many crashes end a job, where task and queue say nothing; 3.
    `queue_defaults`: options of its queues where they say nothing, as one of `penstock.presets`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        broker: Broker | None = None,
        clock: AnyClock | None = None,
        crash_budget: int | None = None,
        queue_defaults: QueueDeclaration | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        if url is not None and broker is not None:
            raise Refused(
                "App(url, broker=...): a URL and a broker both say where; give one of them"
            )
        super().__init__()
        self._url = url
        self.crash_budget = check_crash_budget(crash_budget)
        self._name = name and check_identifier("app", name)
        self._beside: Path | None = calling_file()
        self._keys, self._finds_keys = keys, broker is None
        broker = broker and encrypted(broker, keys)
        self._given = broker
        self._broker: Broker | None = broker
        self._own_clock = clock  # None: the store's
        self._clock = clock or (GUESSED_CLOCK if broker is None else broker.clock)
        self._moved_by: float | None = None  # the seconds that the guess was off by
        self._lock = threading.Lock()
        self._coalescer = Coalescer(self._send, self._places)
        given, what = queue_defaults or {}, "App(queue_defaults=...)"
        self.queues = DeclaredQueues(options_of(what, given), required_of(what, given))
        self.schedules = Schedules(self)
        self.schedule = self.schedules.decorate
        self.topics = Topics(self)
        self.resources = Resources()
        self.state_codecs: dict[str, StateCodec] = {}  # by the name of the flow
        self.ids: Ids = Ids(self._clock)
        self.end_hooks = EndHooks(self)
        if broker is not None:
            broker.traits.ended = self.end_hooks.report
        self.patience = Patience()  # of running jobs with their store
        if switched_on():
            trace(self)
        _apps.add(self)

    def __repr__(self) -> str:
        return f"<app with {len(self.tasks)} tasks>"

    @cached_property
    def name(self) -> str:
        """Which program this is: its workers run the jobs of this name alone."""
        if self._name is not None:
            return self._name
        name, source = resolve_app_name(self._beside)
        return name and check_identifier(f"app ({source})", name)

    @cached_property
    def code(self) -> str:
        """A digest of the program's code as it was when this was first asked for."""
        return code_digest(task.__module__ for task in self.tasks.values())

    # The store

    @cached_property
    def keys(self) -> KeyRing | None:
        """The key ring: that of the code, else of a key file; see `app.key_file`."""
        return self._keys or (self.configured_keys() if self._finds_keys else None)

    def configured_keys(self) -> KeyRing | None:
        """The key ring that settings name; an integration has settings of its own."""
        return find_keys(self.resolved_url)

    @property
    def seals(self) -> bool:
        """Whether it encrypts what it stores."""
        return self.keys is not None

    @property
    def resolved_url(self) -> ResolvedUrl:
        """The store's URL, and where it came from; for people, mask it."""
        return resolve_url(self._url, self._beside)

    def beside_project(self, path: str) -> Path:
        """A relative path as every process of the program takes it, wherever that was started."""
        return (project_root(self._beside) / path).absolute()

    @property
    def broker(self) -> Broker:
        """The store, opened if need be, with this program's queues declared in it."""
        broker = self._broker or self._open()
        self.queues.prepare(broker, self)
        return broker

    def _open(self) -> Broker:
        with self._lock:
            broker = self._broker
            if broker is None:
                keys = self.keys
                broker = encrypted(open_broker(self.resolved_url.url, self._own_clock), keys)
                broker.traits.relaxed = self.queues.relaxed
                broker.traits.ended = self.end_hooks.report
                if self._moved_by is None:  # later openings find nothing that is still to be moved
                    self._moved_by = guessed_clock_error(broker.clock)
                self._clock, self.ids = broker.clock, Ids(broker.clock)
                self._broker = broker
                self.queues.declare_anew()
                self.topics.declare_anew()
        return broker

    @property
    def clock(self) -> AnyClock:
        """The store's clock; the store is opened if its time was never asked for."""
        if self._clock is GUESSED_CLOCK:
            self._open()
        broker = self._broker
        return self._clock if broker is None else broker.clock

    def know_time(self) -> None:
        """Open the store or refresh its clock: ids and times made from now on go by it."""
        if self._broker is None:
            self.ask(self._open)
        elif isinstance(self._clock, RemoteClock) and self._clock.stale():
            self._clock.refresh()

    async def know_time_async(self) -> None:
        """As `know_time`, without holding up the event loop."""
        clock = self._clock
        if self._broker is None or (isinstance(clock, RemoteClock) and clock.stale()):
            import asyncio

            await asyncio.to_thread(self.know_time)

    def make_final(
        self,
        named: Sequence[Job[Any] | Jobs[Any] | Parcel],
        *,
        flow: bool = False,
        bucket: int | None = None,
    ) -> None:
        """Fix the ids and times of these values, which are about to be stored."""
        moved_by = self._moved_by if self._given is None else None
        make_final(named, moved_by or 0.0, flow=flow, bucket=bucket)

    def broker_for(self, connection: Any) -> tuple[Broker, Any]:
        """The broker, and the connection to join, if there is one."""
        connection = self.connection_for(connection)
        if connection is not None:
            # Declaring queues in the store would wait for the caller's own transaction.
            return self._broker or self._open(), connection
        refuse_inside_transaction("enqueue")
        return self.broker, None

    def connection_for(self, given: Any) -> Any:
        """The connection whose transaction an enqueue joins; an integration may know of one."""
        return given

    @contextmanager
    def replace_broker(self, broker: Broker) -> Generator[None]:
        """Use this broker, and its clock, instead; for tests."""
        before = (self._broker, self._given, self._clock, self.ids)
        broker = encrypted(broker, self.keys)
        broker.traits.ended = self.end_hooks.report
        self._broker = self._given = broker
        self._clock, self.ids = broker.clock, Ids(broker.clock)
        self.queues.declare_anew()
        self.topics.declare_anew()
        try:
            yield
        finally:
            self._broker, self._given, self._clock, self.ids = before
            self.queues.declare_anew()
            self.topics.declare_anew()

    def close(self) -> None:
        """Close resources and the store; a later call opens them again."""
        self.end_hooks.wait(_HOOK_SECONDS)
        self.resources.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the store and keep the resources; a later call opens it again."""
        with self._lock:
            broker, self._broker = self._broker, self._given
        if broker is not None and broker is not self._given:
            broker.close()

    def _after_fork(self) -> None:
        _inherited.append((self._broker, self.resources))
        self._lock = threading.Lock()
        self._broker = self._given
        self._coalescer = Coalescer(self._send, self._places)
        self.end_hooks = EndHooks(self)
        self.resources = self.resources.emptied()

    # Jobs

    def enqueue(
        self,
        jobs: Iterable[Job[Any] | Jobs[Any] | Parcel],
        *,
        connection: Any = None,
        on_failure: OnFailure = "cancel",
        flow: NamedFlow[Any] | None = None,
    ) -> list[Handle[Any]]:
        """Store all of these jobs and every job that they need, or none; a handle for each.

        `on_failure` applies to jobs of a flow, see `Job.enqueue`; `flow` is the named flow that
        they are stored as, see `NamedFlow.enqueue`.
        """
        named = named_jobs(jobs)
        self.know_time()
        self.make_final(named, flow=flow is not None)
        stored_flow, stored, listed = to_store(named, on_failure, flow and flow.carried)
        with resent_as(named, stored_flow):
            answer = self.store(stored, self.connection_for(connection), stored_flow)
        return self._handles(listed, answer)

    def store(self, jobs: ToStore, connection: Any = None, flow: Flow | None = None) -> Enqueued:
        """Store these jobs, all or none: their ids are final, and all that they need is there."""
        alone = flow is not None or has_unique_key(jobs)
        if connection is None and not alone and self._nothing_special():
            return self._coalescer.enqueue(jobs)
        with self.sending(inherited_tags(jobs, flow=flow is not None)) as sent:
            if connection is None:
                refuse_inside_transaction("enqueue")
                return self.ask(Sending(self._coalescer, self._send, sent, flow, alone=alone).send)
            with self.patience.mark_errors():
                return self._send(sent, flow, connection=connection)

    def _nothing_special(self) -> bool:
        """Whether the caller is no running job and no span is to be made: as most."""
        return self.tracing is None and CURRENT.get() is None and not self.patience.endless

    def ask(self, question: Callable[[], T]) -> T:
        """Call the store; inside a running job, try again for a while if it is away.

        The call must be safe to make twice.
        """
        current = CURRENT.get()
        if current is not None:  # perhaps a job of another app, to which this store is a service
            return self.patience.ask(question, current.deadline())
        return self.patience.ask(question) if self.patience.endless else question()

    async def _ask_async(self, question: Callable[[], Awaitable[T]]) -> T:
        if CURRENT.get() is not None or self.patience.endless:
            return await self.patience.ask_async(question)
        return await question()

    def sending(self, jobs: Sequence[J]) -> AbstractContextManager[Sequence[J]]:
        """Around what stores these jobs: a span, where the app is traced."""
        return nullcontext(jobs) if self.tracing is None else self.tracing.sending(jobs)

    async def enqueue_async(
        self,
        jobs: Iterable[Job[Any] | Jobs[Any] | Parcel],
        *,
        connection: Any = None,
        on_failure: OnFailure = "cancel",
        flow: NamedFlow[Any] | None = None,
    ) -> list[Handle[Any]]:
        """As `enqueue`, without holding up the event loop; a connection must be asynchronous."""
        named = named_jobs(jobs)
        await self.know_time_async()
        self.make_final(named, flow=flow is not None)
        stored_flow, stored, listed = to_store(named, on_failure, flow and flow.carried)
        with resent_as(named, stored_flow):
            answer = await self.store_async(stored, connection, stored_flow)
        return self._handles(listed, answer)

    async def store_async(
        self, jobs: ToStore, connection: Any = None, flow: Flow | None = None
    ) -> Enqueued:
        """As `store`, without holding up the event loop."""
        alone = flow is not None or has_unique_key(jobs)
        if connection is None and not alone and self._nothing_special():
            return await self._coalescer.enqueue_async(jobs)
        with self.sending(inherited_tags(jobs, flow=flow is not None)) as sent:
            if connection is None:
                refuse_inside_transaction("enqueue_async")
                sending = Sending(self._coalescer, self._send, sent, flow, alone=alone)
                return await self._ask_async(sending.send_async)
            import asyncio

            broker = self._broker or await asyncio.to_thread(lambda: self.broker)
            with self.patience.mark_errors():
                timed = sent if flow is None else with_deadlines(sent, self.clock.now())
                return await join_async(broker, connection, timed, flow)

    def _send(self, jobs: ToStore, flow: Flow | None = None, *, connection: Any = None) -> Enqueued:
        # Declaring queues in the store would wait for the caller's own transaction.
        broker = self.broker if connection is None else self._broker or self._open()
        if flow is None:
            return broker.enqueue(jobs, connection=connection)
        jobs = with_deadlines(jobs, broker.clock.now())
        return broker.enqueue(jobs, connection=connection, flow=flow)

    def _places(self) -> Callable[[str], str] | None:
        return None if self._broker is None else self._broker.traits.place_of

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

    def signal(self, name: str, value: Any = None, *, author: str = "", reason: str = "") -> int:
        """End every job that waits for this name (`wait_for`), with this value as its output.

        Returns how many. 0: nobody waits, and nothing is kept for whoever comes to wait later.
        Sent twice, for instance because the answer was lost, the first stands.
        """
        refuse_inside_transaction("signal")
        encoded = encode_value(value, f"signal {check_signal(name)}")
        return len(self.broker.signal(name, encoded, author, reason))

    # Queues and limits

    def queue(
        self,
        name: str,
        preset: QueueDeclaration | None = None,
        **options: Unpack[QueueDeclaration],
    ) -> str:
        """Register a queue with its options; registering it differently is refused.

        They are those of `penstock.task.option_types.QueueDeclaration`, and hold where a task and
        its jobs say nothing; `preset` is one of `penstock.presets`, or a dict: given options win.
        The store keeps them: the declaration of the newest release that started stands, unless an
        operator overrides it (`penstock queue set`). An order and limits hold for every program
        that uses the queue.
        """
        given: QueueDeclaration = {**(preset or {}), **options}
        what = f"queue {name}"
        self.queues.register(name, options_of(what, given), required_of(what, given))
        if self._broker is not None:
            self._broker.traits.relaxed = self.queues.relaxed
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
        it replaces the earlier one. It stays until it is removed: `penstock limit QUEUE --off`.
        """
        bounds = {"running": running, "rate": rate, "per_key": per_key}
        name = task.name if isinstance(task, Task) else task
        return self.broker.put(limit_rule(queue, name, author, reason, **bounds))

    def spark_session(self) -> Generator[SparkSession]:
        """The resource that tasks with `spark=True` share: a session of this process.

        In tests: `app.replace(app.spark_session, spark)`.
        """
        from penstock.spark.task import opened_session

        yield from opened_session(self.resolved_url.url)

    def replace(self, factory: Callable[[], Any], value: Any) -> AbstractContextManager[None]:
        """In tests: hand out `value` where tasks `use(factory)`."""
        return self.resources.replace(factory, value)

    def testing(self, **options: Any) -> Testing:
        """`with app.testing() as t:` swaps the store for one in memory; see penstock.testing."""
        from penstock.testing import Testing

        return Testing(self, **options)

    @property
    def opens_itself(self) -> bool:
        """Whether it finds its store by a URL; else somebody gave it a broker."""
        return self._given is None

    def describe(self) -> str:
        """The store and where its URL was set, without passwords."""
        if self._given is not None:
            return f"{type(self._given).__name__} (given to the App)"
        resolved = self.resolved_url
        return f"{mask(resolved.url)} ({resolved.source})"


def _after_fork() -> None:
    for app in list(_apps):
        app._after_fork()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
