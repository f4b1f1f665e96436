"""A store whose payloads are encrypted: sealed on their way in, opened on their way out.

Only programs with the key ring read them; the store, its backups and whoever looks at it without
the ring have sealed values. Each argument is sealed on its own, so that the store can still delete
secrets when a job ends. What is not in `_AS_IT_IS` is refused, so that a verb that is added later
stores nothing in clear text before somebody has decided about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.app.key_ring import SEALED, KeyRing, KeyUnknown
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.records import R
from penstock.broker.traits import begins
from penstock.broker.values import (
    Action,
    Batch,
    Claimed,
    Committed,
    Enqueued,
    Settlement,
    Transaction,
    Wanted,
)
from penstock.broker.views import Event, Note, Page
from penstock.enqueue.secrets import HASH, HIDDEN
from penstock.errors import Refused
from penstock.flows.flow import Flow, JobOutput
from penstock.job import Job, Outcome, Parcel, put_back
from penstock.schedules.schedule import Decision, Schedule

_AS_IT_IS = frozenset(
    {
        *("audit", "clear", "clock", "close", "count", "discard", "flow", "flows"),
        *("gauge", "prune", "reach", "recover", "renew", "scan", "slices", "traits", "wait"),
        *("wake", "why", "workers"),
    }
)
_NOTES = frozenset({"snapshot", "step", "event", "log"})  # the others are read by the store's side
_UNSEALED = frozenset({b"null", msgspec.json.encode(HIDDEN)})  # the store has to tell these
_NO_KEY_SECONDS = 30.0
_MARK_SECONDS = 86400.0
_Fields = dict[str, msgspec.Raw]


def encrypted(broker: Broker, keys: KeyRing | None) -> Broker:
    """The broker behind this key ring; without one, the broker itself."""
    return broker if keys is None else cast("Broker", EncryptedBroker(broker, keys))


class EncryptedBroker:
    """A broker behind a key ring."""

    def __init__(self, store: Broker, keys: KeyRing) -> None:
        self.store = store
        self.keys = keys
        self._marked: dict[str, float] = {}  # apps, and when they are to be marked again

    def __getattr__(self, name: str) -> Any:
        if name in _AS_IT_IS:
            return getattr(self.store, name)
        raise AttributeError(name)

    # Core

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        if connection is None:  # else the store may wait for the caller's own transaction
            self._mark(jobs)
        sealed = self._sealed_all(jobs)
        return self.store.enqueue(sealed, batch=batch, connection=connection, flow=flow)

    def join(self, jobs: Sequence[Job[Any] | Parcel], *, flow: Flow | None = None) -> Any:
        """For a caller's asynchronous connection."""
        return cast("Any", self.store).join(self._sealed_all(jobs), flow=flow)

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        self._mark([job for job, _ in settlements])
        answer = self.store.claim(wanted, [self.sealed_settlement(*pair) for pair in settlements])
        return msgspec.structs.replace(answer, jobs=[self._claimed(jobs) for jobs in answer.jobs])

    def _claimed(self, jobs: Sequence[Job[Any]]) -> list[Job[Any]]:
        """Claimed jobs, opened; those whose key this process does not have yet are put back."""
        opened: list[Job[Any]] = []
        for job in jobs:
            try:
                opened.append(self._opened(job))
            except KeyUnknown:
                again = put_back("no_key", self.store.clock.now() + _NO_KEY_SECONDS)
                self.store.settle([(job, again)])
            except Refused:  # changed by somebody: it fails as unreadable
                opened.append(job)
        return opened

    def settle(self, pairs: Sequence[Settlement]) -> Sequence[bool | None]:
        self._mark([job for job, _ in pairs])
        return self.store.settle([self.sealed_settlement(*pair) for pair in pairs])

    def begin(self) -> Transaction:
        return _EncryptedTransaction(self, begins(self.store).begin())

    def note(self, job: Job[Any], note: Note) -> bool:
        if note.kind in _NOTES:
            value = self.keys.seal(note.value, _place_of(note.kind, note.name), job.id)
            note = msgspec.structs.replace(note, value=value)
        return self.store.note(job, note)

    def get(self, job_id: str) -> Job[Any] | None:
        job = self.store.get(job_id)
        return None if job is None else self._shown(job)

    def history(self, *args: Any, **kwargs: Any) -> list[Event]:
        return [self._event(row) for row in self.store.history(*args, **kwargs)]

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
        if not secrets:
            return self.store.act(action, ids, author, reason, flow=flow, part_of=part_of)
        done: list[str] = []
        for id in ids:  # each has a sealed value of its own
            sealed = {
                name: msgspec.Raw(self.keys.seal(msgspec.json.encode(value), f"args.{name}", id))
                for name, value in secrets.items()
            }
            done += self.store.act(action, [id], author, reason, part_of=part_of, secrets=sealed)
        return done

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        return self.store.signal(name, self.keys.seal(value, "result", None), author, reason)

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        if not isinstance(record, Schedule):  # a subscription has no arguments
            return self.store.put(record, author, reason)
        kept = self.store.put(self._sealed_schedule(record), author, reason)
        return cast("R", self._opened_schedule(kept))

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        sealed = [
            each if each.job is None else msgspec.structs.replace(each, job=self._sealed(each.job))
            for each in decisions
        ]
        return self.store.decide_schedule(self._sealed_schedule(schedule), sealed)

    # Look and bulk

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        return [
            msgspec.structs.replace(
                note, value=self._shown_value(note.value, _place_of(note.kind, note.name), job_id)
            )
            for note in self.store.notes(job_id, kind)
        ]

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        if filter.args or (filter.exclude is not None and filter.exclude.args):
            raise Refused("arguments are encrypted: find jobs by tag, key, task or state")
        page = self.store.find(filter, after, limit)
        return msgspec.structs.replace(page, jobs=[self._shown(job) for job in page.jobs])

    def outputs(self, node: str) -> list[JobOutput]:
        return [
            each
            if each.result is None
            else msgspec.structs.replace(
                each, result=self.keys.open(each.result, "result", each.job)
            )
            for each in self.store.outputs(node)
        ]

    def records(self, kind: type[R]) -> list[R]:
        found = self.store.records(kind)
        if kind is not Schedule:
            return found
        return [cast("R", self._opened_schedule(cast("Schedule", each))) for each in found]

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        self._mark(jobs)
        return self.store.stage(write, part, self._sealed_all(jobs))

    def commit_write(self, *args: Any, **kwargs: Any) -> Committed:
        done = self.store.commit_write(*args, **kwargs)
        return done._replace(left_out=tuple(self._shown(job) for job in done.left_out))

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        return {id: self._shown(job) for id, job in self.store.get_many(ids).items()}

    # Sealed

    def _mark(self, jobs: Sequence[Job[Any] | Parcel]) -> None:
        """Have the store remember whose jobs are encrypted: once a day is enough."""
        now = self.store.clock.monotonic()
        for app in {job.lane.app if isinstance(job, Parcel) else job.app for job in jobs}:
            if now >= self._marked.get(app, now):
                self.store.traits.mark_sealed(app)
                self._marked[app] = now + _MARK_SECONDS

    def _sealed_all(self, jobs: Sequence[Job[Any] | Parcel]) -> list[Job[Any] | Parcel]:
        return [
            self._sealed_parcel(job) if isinstance(job, Parcel) else self._sealed(job)
            for job in jobs
        ]

    def _sealed(self, job: Job[Any]) -> Job[Any]:
        if job.search:
            raise Refused(
                f"task {job.task}: search= stores arguments in an index, in clear text; with a key "
                "ring use a tag"
            )
        return msgspec.structs.replace(job, body=self._sealed_body(job.body, job.id))

    def _sealed_parcel(self, parcel: Parcel) -> Parcel:
        pairs = zip(parcel.bodies, parcel.ids(), strict=True)
        return msgspec.structs.replace(
            parcel, bodies=[self._sealed_body(body, id) for body, id in pairs]
        )

    def _sealed_body(self, body: bytes, job: str | None) -> bytes:
        fields = _fields(body)
        if fields is None:
            return body  # nobody can read it
        whole, arguments = fields
        sealed = {
            name: msgspec.Raw(
                bytes(value)
                if bytes(value) in _UNSEALED
                else self.keys.seal(bytes(value), f"args.{name}", job)
            )
            for name, value in arguments.items()
        }
        return msgspec.json.encode({**whole, **self._sealed_hash(whole, job), "args": sealed})

    def _sealed_hash(self, body: _Fields, job: str | None) -> _Fields:
        """The headers with the hash of the arguments sealed: who guesses could compare with it."""
        headers = _hashed_headers(body)
        if headers is None:
            return {}
        if not _as_sealed(headers[HASH]):  # else it was sealed by the first call
            plain = msgspec.json.encode(headers[HASH])
            headers[HASH] = self.keys.seal(plain, f"headers.{HASH}", job).decode()
        return {"headers": msgspec.Raw(msgspec.json.encode(headers))}

    def sealed_settlement(self, job: Job[Any], outcome: Outcome) -> Settlement:
        sealed = msgspec.structs.replace(job, body=self._sealed_body(job.body, job.id))
        changes: dict[str, Any] = {}
        if outcome.result is not None:
            changes["result"] = self.keys.seal(outcome.result, "result", job.id)
        if outcome.spawned:
            changes["spawned"] = tuple(self._sealed_all(outcome.spawned))
        return sealed, msgspec.structs.replace(outcome, **changes) if changes else outcome

    def _sealed_schedule(self, schedule: Schedule) -> Schedule:
        body = self._sealed_body(schedule.job.body, None)
        return msgspec.structs.replace(
            schedule, job=msgspec.structs.replace(schedule.job, body=body)
        )

    # Opened

    def _opened_body(self, body: bytes, job: str | None) -> bytes:
        fields = _fields(body)
        if fields is None:
            return body
        whole, arguments = fields
        opened = {
            name: msgspec.Raw(self.keys.open(bytes(value), f"args.{name}", job))
            for name, value in arguments.items()
        }
        return msgspec.json.encode({**whole, **self._opened_hash(whole, job), "args": opened})

    def _opened_hash(self, body: _Fields, job: str | None) -> _Fields:
        headers = _hashed_headers(body)
        if headers is None or not _as_sealed(headers[HASH]):
            return {}
        opened = self.keys.open(headers[HASH].encode(), f"headers.{HASH}", job)
        headers[HASH] = msgspec.json.decode(opened, type=str)
        return {"headers": msgspec.Raw(msgspec.json.encode(headers))}

    def _opened(self, job: Job[Any]) -> Job[Any]:
        return msgspec.structs.replace(job, body=self._opened_body(job.body, job.id))

    def _shown(self, job: Job[Any]) -> Job[Any]:
        """For whoever looks: what cannot be opened stays sealed."""
        try:
            job = self._opened(job)
        except Refused:
            return job
        if job.result is None:
            return job
        return msgspec.structs.replace(job, result=self._shown_value(job.result, "result", job.id))

    def _shown_value(self, value: bytes, place: str, job: str) -> bytes:
        try:
            return self.keys.open(value, place, job)
        except Refused:
            return value

    def _event(self, row: Event) -> Event:
        changes: dict[str, Any] = {}
        if row.job is not None and row.body is not None:
            try:
                changes["body"] = self._opened_body(row.body, row.job)
            except Refused:
                return row
        if row.job is not None and row.result is not None:
            changes["result"] = self._shown_value(row.result, "result", row.job)
        if row.kind == "event" and row.job is not None and row.data is not None:
            changes["data"] = self._event_data(row.data, row.job)
        return msgspec.structs.replace(row, **changes) if changes else row

    def _event_data(self, data: bytes, job: str) -> bytes:
        try:
            fields = msgspec.json.decode(data, type=_Fields)
            name = msgspec.json.decode(fields["name"], type=str)
        except (msgspec.DecodeError, KeyError):
            return data
        value = self._shown_value(bytes(fields["value"]), _place_of("event", name), job)
        return msgspec.json.encode({**fields, "value": msgspec.Raw(value)})

    def _opened_schedule(self, schedule: Schedule) -> Schedule:
        try:
            body = self._opened_body(schedule.job.body, None)
        except Refused:
            return schedule
        return msgspec.structs.replace(
            schedule, job=msgspec.structs.replace(schedule.job, body=body)
        )


class _EncryptedTransaction:
    """A transaction of the store's own database."""

    def __init__(self, broker: EncryptedBroker, transaction: Transaction) -> None:
        self._broker = broker
        self._transaction = transaction
        self.connection = transaction.connection

    def settle(self, job: Job[Any], outcome: Outcome) -> bool:
        return self._transaction.settle(*self._broker.sealed_settlement(job, outcome))

    def rollback(self) -> None:
        self._transaction.rollback()

    def broken_by(self, error: BaseException) -> bool:
        return self._transaction.broken_by(error)


def _fields(body: bytes) -> tuple[_Fields, _Fields] | None:
    """A body and its arguments, each value as it is written; None if it is no body."""
    try:
        whole = msgspec.json.decode(body, type=_Fields)
        return whole, msgspec.json.decode(whole["args"], type=_Fields)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return None


def _hashed_headers(body: _Fields) -> dict[str, str] | None:
    """The headers of a body, if a hash of its arguments is among them."""
    text = bytes(body.get("headers", b""))
    if HASH.encode() not in text:
        return None
    try:
        headers = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return None
    return headers if HASH in headers else None


def _as_sealed(text: str) -> bool:
    return text.encode().startswith(SEALED)


def _place_of(kind: str, name: str) -> str:
    return f"{kind}.{name}"
