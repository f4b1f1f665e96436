"""RemoteBroker: every verb is one call of a manager, which carries it out on its own broker.

The store, its clock and its leases are the manager's; so is every decision. An answer that was lost
is handled as on PostgreSQL: what is safe to repeat is sent once more, and if that fails too, a
caller of `enqueue` gets `UnknownOutcome`, every other one `StoreUnreachable`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from penstock.app.clock import AnyClock, ticks
from penstock.app.version import RELEASE
from penstock.broker import wire
from penstock.broker.call_deadline import OVER, call_seconds
from penstock.broker.checks import legible
from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.records import Record
from penstock.broker.slice import Reach, Selection, Slice
from penstock.broker.traits import Capability, Traits
from penstock.broker.values import (
    Action,
    Batch,
    Claimed,
    Committed,
    Enqueued,
    Epoch,
    Renewed,
    Settlement,
    Wanted,
)
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.broker.wire_verbs import VERBS
from penstock.brokers.arrow import arrow
from penstock.brokers.remote.address import parse_address
from penstock.brokers.remote.connection import ManagerConnection
from penstock.brokers.remote.errors import CallLost
from penstock.brokers.remote.watch import Watch
from penstock.brokers.server_clock import StoreClock
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.flows.flow import Flow, FlowPage, FlowRow, JobOutput
from penstock.job import Job, Parcel
from penstock.manager.contract import store_pb2 as messages
from penstock.schedules.schedule import Decision, Schedule

R = TypeVar("R", bound=Record)

# More than the store itself gives a call, so that its own error is heard, which says more.
CALL_SECONDS = 45.0
LONG_SECONDS = 900.0  # of what may take minutes: it goes page by page, or commits a large write
AGAIN_SECONDS = 5.0  # for a connection and an answer, of what is sent a second time
POLL_SECONDS = 2.0
_DEAF_SECONDS = 1.0  # while no hints come
_HELLO_SECONDS = 10.0
_LONG = frozenset(
    {"prune", "gauge", "recover", "commit_write", "discard", "stage", "slices", "act"}
)
_WORDS = frozenset({"author", "reason"})  # of people: these never make a call fail
# What may be sent twice, because the second answer is as good as the first: a claim would hand out
# other jobs, and a settlement that was applied would look stale.
_AGAIN = frozenset(
    {"enqueue", "renew", "put", "stage", "commit_write", "discard", "mark_sealed"}
) | {
    *("get", "get_many", "count", "history", "why", "notes", "find", "flow", "flows", "outputs"),
    *("records", "workers", "reach", "slices", "digest_key", "sealed_apps", "rules_version"),
}


class RemoteBroker:
    """A Broker over the wire."""

    def __init__(self, url: str, clock: AnyClock | None = None) -> None:
        self._connection = ManagerConnection(parse_address(url))
        self._watch = Watch(self._connection)
        self._store_clock = StoreClock(self._hello)
        try:
            hello = self._hello()
        except BaseException:
            self._connection.close()
            raise
        self.clock = clock or self._store_clock
        self.traits = Traits(
            name=f"the manager {self._connection.where}",
            capabilities=frozenset(cast("list[Capability]", hello.capabilities)),
            apart=True,
            retention=hello.retention,
            poll_seconds=lambda: POLL_SECONDS if self._watch.live else _DEAF_SECONDS,
            digest_key=self._digest_key,
            sealed_apps=lambda: self._call("sealed_apps"),
            mark_sealed=lambda app: self._call("mark_sealed", app=app),
            rules_version=self._rules_version,
        )
        self._key: bytes | None = None

    def _hello(self) -> Any:
        asked_at = ticks()
        request = messages.HelloRequest(release=RELEASE)
        hello = self._connection.unary("Hello", request, messages.HelloAnswer, _HELLO_SECONDS)
        self._store_clock.measured(hello.now, asked_at, ticks())
        self._watch.hear(hello.rules)
        return hello

    def _digest_key(self) -> bytes:
        if self._key is None:
            self._key = cast("bytes", self._call("digest_key"))
        return self._key

    def _rules_version(self) -> int:
        """Asked for before every start: as the stream says, or else as the manager says."""
        if not self._watch.live:
            self._watch.begin()
        if not self._watch.live:
            try:
                self._call("rules_version")
            except StoreUnreachable:
                self._watch.forget()  # whoever starts a job now reads the rules, and cannot
        return self._watch.version

    def _call(self, verb: str, /, _sent: Sequence[Job[Any] | Parcel] = (), **arguments: Any) -> Any:
        form = VERBS[verb]
        for words in _WORDS.intersection(arguments):
            arguments[words] = legible(arguments[words])
        request = messages.CallRequest(
            verb=verb,
            arguments=wire.encode(arguments),
            reports_ended=self.traits.ended is not None,
        )
        # A batch counts its rows, so it is refused when it is sent a second time.
        again = verb in _AGAIN and arguments.get("batch") is None
        answer = self._answer(verb, request, again=again)
        self._watch.hear(answer.rules)
        if answer.ended:
            self._report(answer.ended)
        if answer.WhichOneof("outcome") == "failure":
            raise failure_in(answer.failure, _sent)
        return wire.decode(answer.value, form.answer)

    def _answer(self, verb: str, request: Any, *, again: bool) -> Any:
        try:
            return self._send(verb, request)
        except CallLost:
            if not again:
                raise
        try:
            return self._send(verb, request, patient=True)
        except StoreUnreachable as error:  # of whatever kind: the first may have been carried out
            raise CallLost(str(error)) from error

    def _send(self, verb: str, request: Any, *, patient: bool = False) -> Any:
        seconds = call_seconds(LONG_SECONDS if verb in _LONG else CALL_SECONDS)
        if patient:
            seconds = min(seconds, AGAIN_SECONDS)
        if seconds <= 0:
            raise StoreUnreachable(OVER)
        return self._connection.unary(
            "Call", request, messages.CallAnswer, seconds, patient=patient
        )

    def _report(self, encoded: bytes) -> None:
        if self.traits.ended is not None:
            for job in wire.decode(encoded, list[Job[Any]]):
                self.traits.ended(job)

    # Core

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        if connection is not None:
            raise Refused(
                f"{self.traits.name} has no transaction to join: leave out connection=, or use the "
                "store in the application's own database directly"
            )
        request = {"jobs": wire.to_pieces(jobs), "batch": batch, "flow": flow}
        try:
            return self._call("enqueue", jobs, **request)
        except CallLost as error:
            raise UnknownOutcome(
                f"{error}; whether the jobs are stored is not known. Sending them again is safe: "
                "each is stored once",
                jobs,
            ) from error.__cause__

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        return self._call("claim", wanted=list(wanted), settlements=wire.to_ended(settlements))

    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        return self._call("settle", pairs=wire.to_ended(pairs))

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        return self._call("renew", workers=list(workers), holding=wire.as_list(holding))

    def note(self, job: Job[Any], note: Note) -> bool:
        return self._call("note", job=wire.bare(job), note=note)

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        del queues  # a hint names no queue
        return self._watch.wait(timeout)

    def wake(self) -> None:
        self._watch.wake()

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        known = (
            dict(cast("Any", started)) if isinstance(started, Mapping) else wire.as_list(started)
        )
        return self._call("recover", by=by, dead=dead, started=known)

    def prune(self, before: float) -> int:
        return self._call("prune", before=before)

    def gauge(self) -> int:
        return self._call("gauge")

    def get(self, job_id: str) -> Job[Any] | None:
        return self._call("get", job_id=job_id)

    def count(self) -> list[Count]:
        return self._call("count")

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        kinds = kind if isinstance(kind, str) else wire.as_list(kind)
        return self._call("history", after=after, limit=limit, job=job, kind=kinds, before=before)

    def why(self, job_id: str) -> Why:
        return self._call("why", job_id=job_id)

    def close(self) -> None:
        self._watch.close()
        self._connection.close()

    # Control

    def act(
        self,
        action: Action,
        ids: Sequence[str] = (),
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> list[str]:
        return self._call(
            "act",
            action=action,
            ids=list(ids),
            author=author,
            reason=reason,
            flow=flow,
            part_of=part_of,
            secrets=secrets,
        )

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        return self._call("signal", name=name, value=value, author=author, reason=reason)

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        kept = self._call("put", record=wire.to_record(record), author=author, reason=reason)
        return wire.from_record(kept)

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        return self._call(
            "clear", kind=kind.__name__, record_id=record_id, author=author, reason=reason
        )

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        return self._call(
            "decide_schedule",
            schedule=wire.bare_schedule(schedule),
            decisions=wire.to_decisions(decisions),
        )

    def audit(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        self._call("audit", kind=kind, author=author, reason=reason, data=data)

    # Look

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        return self._call("notes", job_id=job_id, kind=kind)

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        return self._call("find", filter=filter, after=after, limit=limit)

    def flow(self, flow_id: str) -> FlowRow | None:
        return self._call("flow", flow_id=flow_id)

    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        return self._call("flows", name=name, find=find, after=after, limit=limit)

    def outputs(self, node: str) -> list[JobOutput]:
        return self._call("outputs", node=node)

    def records(self, kind: type[R]) -> list[R]:
        return [wire.from_record(kept) for kept in self._call("records", kind=kind.__name__)]

    def workers(self) -> list[WorkerRow]:
        return self._call("workers")

    # Bulk

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        return self._call("stage", write=write, part=part, jobs=wire.to_pieces(jobs))

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        return self._call("commit_write", write=write, parts=dict(parts), token=token, epoch=epoch)

    def discard(self, write: str) -> None:
        self._call("discard", write=write)

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        return self._call("get_many", ids=list(ids))

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,
        *,
        until: Position | None = None,
    ) -> Reach:
        return self._call(
            "reach",
            selection=selection,
            after=after,
            at_most=at_most,
            patience=patience,
            until=until,
        )

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        return self._call("slices", selection=selection, after=after, until=until, at_most=at_most)

    def scan(self, part: Slice) -> Iterator[Any]:
        pa = arrow()
        request = messages.ScanRequest(slice=wire.encode(part))
        parts = self._connection.stream("Scan", request, messages.ScanPart, LONG_SECONDS)
        try:
            for each in parts:
                if each.HasField("failure"):
                    raise failure_in(each.failure)
                yield from pa.ipc.open_stream(each.batches)
        except Exception as error:
            if not hasattr(error, "code"):
                raise
            raise self._connection.lost(error) from None
        finally:
            parts.cancel()


def failure_in(failure: Any, sent: Sequence[Job[Any] | Parcel] = ()) -> BaseException:
    """The error that a manager answered."""
    fields: dict[str, str | int | float | None] = {}
    if failure.fields:
        fields = msgspec.msgpack.decode(failure.fields, type=dict[str, str | int | float | None])
    return wire.from_failure(wire.Failure(failure.kind, failure.message, fields), sent)
