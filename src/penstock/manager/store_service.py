"""The service Store: each call is one verb of the broker, carried out on one of a few threads.

Those threads bound what the store is asked at once, and its connections. Errors of Penstock travel
in the answer; a status of gRPC is about the way there.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, TypeVar

from penstock.app.version import RELEASE
from penstock.broker import wire
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions, only_declares
from penstock.broker.slice import Slice
from penstock.broker.wire_verbs import VERBS, verb_named
from penstock.errors import Refused
from penstock.job import Job
from penstock.manager.access import Client, ManagerAccess, ManagerRole
from penstock.manager.contract import store_pb2 as messages
from penstock.manager.queue_view import QueueView
from penstock.manager.watching import Watching
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule

MOST_BYTES = 64 * 1024 * 1024  # of one message
STORE_THREADS = 6  # and one hands out jobs: with what listens, eight connections at most
MOST_SCANS = 4  # at once: each has a connection of its own
_PART_BYTES = 4 * 1024 * 1024
_PARTS_AHEAD = 2
# What a store keeps to itself: a client has no connection to its database.
_NOT_OVER_THE_WIRE = frozenset({"joins", "joins later", "begins", "moves", "quotas", "roles"})
_STOPS = (RuleKind.PAUSE, RuleKind.BLOCK)

log = logging.getLogger("penstock.manager")
T = TypeVar("T")


class StoreService:
    """A broker, as the service Store of the contract."""

    def __init__(
        self, broker: Broker, loop: asyncio.AbstractEventLoop, access: ManagerAccess
    ) -> None:
        self.broker = broker
        self._access = access
        self.watching = Watching(broker, loop)
        self._loop = loop
        self._pool = ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="penstock-store")
        self._scans = asyncio.Semaphore(MOST_SCANS)
        self._ended = threading.local()
        broker.traits.ended = self._keep_ended

    def _keep_ended(self, job: Job[Any]) -> None:
        """Called by the broker, in the thread of the call that ended the job."""
        jobs: list[Job[Any]] | None = getattr(self._ended, "jobs", None)
        if jobs is not None:
            jobs.append(job)

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do this on one of the threads that speak to the store."""
        return await self._loop.run_in_executor(self._pool, work, *arguments)

    async def hello(self, _: Any, context: Any) -> Any:
        await self._access.client(context)
        return await self.run(self._hello)

    def _hello(self) -> Any:
        traits = self.broker.traits
        return messages.HelloAnswer(
            release=RELEASE,
            store=traits.name,
            capabilities=sorted(traits.capabilities - _NOT_OVER_THE_WIRE),
            retention=traits.retention,
            rules=self._version(),
            now=self.broker.clock.now(),
        )

    async def call(self, request: Any, context: Any) -> Any:
        client = await self._access.client(context)
        return await self.run(self._call, request, client)

    def _call(self, request: Any, client: Client) -> Any:
        self._ended.jobs = [] if request.reports_ended else None
        answer = messages.CallAnswer()
        try:
            verb = verb_named(request.verb)
            of_kind = _kind_of_record(request)
            client.check(request.verb, _role_for(request, of_kind))
            if client.role is ManagerRole.PRODUCE and request.verb == "put":
                answer.value = wire.encode(self._as_it_stands(request, client))
            else:
                answer.value = _bounded(verb.carry_out(self._seen_by(client), request.arguments))
            if request.verb == "put" and of_kind == Rule.__name__:
                self._rules_changed(request)
        except Exception as error:
            answer.failure.CopyFrom(failure_of(error, request.verb))
        if any_ended := getattr(self._ended, "jobs", None):
            answer.ended = wire.encode(any_ended)
        self._ended.jobs = None
        answer.rules.CopyFrom(self._version())
        answer.now = self.broker.clock.now()
        return answer

    def _seen_by(self, client: Client) -> Broker:
        if client.queues is None:
            return self.broker
        view: Any = QueueView(self.broker, client.queues, client.name)
        return view

    def _as_it_stands(self, request: Any, client: Client) -> wire.KeptRecord:
        """A producer's declaration of a queue is not written: workers of its program do that."""
        given: Any = wire.from_record(wire.decode(request.arguments, VERBS["put"].arguments).record)
        kept = self._seen_by(client).records(QueueOptions)
        return wire.to_record(next((each for each in kept if each.id == given.id), given))

    def _rules_changed(self, request: Any) -> None:
        """Once a pause is in force here, nothing that it covers starts at any client."""
        put = wire.decode(request.arguments, VERBS["put"].arguments)
        if wire.from_record(put.record).kind in _STOPS:
            self.watching.wait_until_heard()

    def _version(self) -> Any:
        version = self.watching.version
        return messages.RulesVersion(instance=version.instance, number=version.number())

    async def watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self._access.client(context)
        version = self.watching.version
        async for hints, number in self.watching.news(request.watch):
            rules = messages.RulesVersion(instance=version.instance, number=number)
            yield messages.News(hints=hints, rules=rules)

    async def heard(self, request: Any, context: Any) -> Any:
        await self._access.client(context)
        if request.rules.instance == self.watching.version.instance:
            self.watching.heard(request.watch, request.rules.number)
        return messages.HeardAnswer()

    async def scan(self, request: Any, context: Any) -> AsyncIterator[Any]:
        client = await self._access.client(context)
        try:
            client.check("scan")
        except Refused as error:
            yield messages.ScanPart(failure=failure_of(error, "scan"))
            return
        async with self._scans:
            parts = _Parts(self._seen_by(client), request.slice)
            try:
                while (part := await asyncio.to_thread(parts.next)) is not None:
                    yield part
            finally:
                parts.stop()

    def stop(self) -> None:
        self.watching.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _role_for(request: Any, kind: str) -> ManagerRole | None:
    """Of what a program does by itself: a worker puts the schedules and queues of its code."""
    if kind == Schedule.__name__:
        return ManagerRole.WORK
    if kind != QueueOptions.__name__:
        return None
    if request.verb == "records":
        return ManagerRole.PRODUCE  # each enqueue goes by them
    if request.verb == "put":
        put = wire.decode(request.arguments, VERBS["put"].arguments)
        if only_declares(wire.from_record(put.record)):
            return ManagerRole.PRODUCE
    return None


def _kind_of_record(request: Any) -> str:
    """The class of the records that the call is about."""
    if request.verb == "records":
        return wire.decode(request.arguments, VERBS["records"].arguments).kind
    if request.verb == "put":
        return wire.decode(request.arguments, VERBS["put"].arguments).record.kind
    if request.verb == "clear":
        return wire.decode(request.arguments, VERBS["clear"].arguments).kind
    return ""


def failure_of(error: Exception, what: str) -> Any:
    """What the client is told of an error; one that is not Penstock's own is logged here."""
    failure = wire.to_failure(error)
    if failure.kind == "PenstockError":
        log.error("%s failed", what, exc_info=error)
    fields = wire.encode(failure.fields)
    return messages.Failure(kind=failure.kind, message=failure.message, fields=fields)


def _bounded(value: bytes) -> bytes:
    if len(value) > MOST_BYTES - _PART_BYTES:
        raise Refused(
            f"the answer takes {len(value):,} bytes, and a manager sends {MOST_BYTES:,} at most: "
            "ask for fewer at once"
        )
    return value


class _Parts:
    """The rows of a slice, read by a thread of its own: some drivers want one for all of a read."""

    def __init__(self, broker: Broker, encoded: bytes) -> None:
        self._parts: queue.Queue[Any] = queue.Queue(_PARTS_AHEAD)
        self._stopped = threading.Event()
        threading.Thread(target=self._read, args=(broker, encoded), daemon=True).start()

    def next(self) -> Any:
        return self._parts.get()

    def stop(self) -> None:
        self._stopped.set()

    def _read(self, broker: Broker, encoded: bytes) -> None:
        try:
            for batch in broker.scan(wire.decode(encoded, Slice)):
                for part in _small(batch):
                    if not self._put(messages.ScanPart(batches=_as_ipc(part))):
                        return
        except Exception as error:
            self._put(messages.ScanPart(failure=failure_of(error, "scan")))
        self._put(None)

    def _put(self, part: Any) -> bool:
        """False if nobody reads any more."""
        while not self._stopped.is_set():
            try:
                self._parts.put(part, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False


def _small(batch: Any) -> Iterator[Any]:
    """The batch in halves, until each fits a message."""
    if batch.nbytes > _PART_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _small(batch.slice(0, half))
        yield from _small(batch.slice(half))
    else:
        yield batch


def _as_ipc(batch: Any) -> bytes:
    arrow: Any = import_module("pyarrow")
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
