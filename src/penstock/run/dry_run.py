"""A read-only view of a store, which reports what a job would have written.

`penstock debug` runs a job behind it. Only what stands in `_READ` reaches the store, so that a verb
that is added later is refused until somebody has decided about it. What the job notes is kept here,
so that it reads back its own snapshot as it would in a worker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec

from penstock.broker.lake_mark import Mark
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions
from penstock.broker.records import R, Record
from penstock.broker.traits import begins
from penstock.broker.values import Action, Batch, Committed, Enqueued, Epoch, Transaction
from penstock.broker.views import Note, author_and_reason
from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.flows.flow import Flow, FlowRow, member_of
from penstock.flows.state import merged
from penstock.job import Job, Outcome, Parcel, count_jobs
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

_READ = frozenset(
    {
        *("clock", "close", "count", "find", "flows", "get", "get_many", "history"),
        *("outputs", "reach", "records", "scan", "slices", "wait", "wake", "why", "workers"),
    }
)
# What workers and pipelines do, and no task has a reason to.
_WORK = frozenset(
    {
        *("claim", "decide_schedule", "gauge", "prune", "recover", "renew", "settle"),
    }
)
_DONE: dict[Action, str] = {"cancel": "cancelled", "retry": "retried", "delete": "deleted"}
_SHOWN = 5  # jobs of one call that are listed one by one


class Withheld(msgspec.Struct, frozen=True):
    """A write that was not made: of which kind, and what it would have said."""

    kind: str
    says: str
    data: Any = None


class WithholdingBroker:
    """Reads from the store; reports each write instead of making it."""

    def __init__(self, store: Broker, report: Callable[[Withheld], None]) -> None:
        self.traits = msgspec.structs.replace(store.traits, relaxed=frozenset())
        self.outcome: Outcome | None = None  # that a transaction would have settled
        self._store = store
        self._report = report
        self._notes: dict[str, dict[tuple[str, str], Note]] = {}
        self._states: dict[str, bytes] = {}  # what was merged, by flow

    def __getattr__(self, name: str) -> Any:
        if name in _READ:
            return getattr(self._store, name)
        if name in _WORK:
            return partial(_refuse, name)
        raise AttributeError(name)

    def _withhold(self, kind: str, says: str, data: Any = None) -> None:
        self._report(Withheld(kind, f"would have {says}", data))

    # Hand over

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        del connection  # not written to either: whoever commits it would commit the jobs
        number = count_jobs(jobs)
        if number:
            as_flow = "" if flow is None else f" as the flow {flow.id}"
            says = f"enqueued {_jobs(number)}{as_flow}: {_listed(jobs)}"
            self._withhold("enqueue", says, [*map(_described, jobs)])
        return Enqueued(batch=0 if batch is None else batch.count + number)

    def join(self, jobs: Sequence[Job[Any] | Parcel], *, flow: Flow | None = None) -> _Join:
        """For a caller's asynchronous connection."""
        return _Join(self, jobs, flow)

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        self._withhold("stage", f"staged {_jobs(count_jobs(jobs))} of {write}, part {part}")

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        del epoch
        self._withhold("commit_write", f"committed {_jobs(sum(parts.values()))} of {write}")
        return Committed(sum(parts.values()), token)

    def discard(self, write: str) -> None:
        self._withhold("discard", f"discarded what is staged of {write}")

    # Work

    def note(self, job: Job[Any], note: Note) -> bool:
        name = f" {note.name}" if note.name and note.kind != "log" else ""
        says = f"noted {note.kind}{name}: {note.value.decode('utf-8', 'replace')}"
        self._withhold(note.kind, says, {"name": note.name, "value": msgspec.Raw(note.value)})
        if note.kind == "state" and (key := member_of(job.body)) is not None:
            self._states[key.id] = merged(self._states.get(key.id, b"{}"), note.value)
        elif note.kind not in {"event", "state"}:
            self._notes.setdefault(job.id, {})[note.kind, note.name] = note
        return True

    def begin(self) -> Transaction:
        return _Undone(self, begins(self._store).begin())

    def settled(self, outcome: Outcome) -> None:
        """The end of a job that is in a transaction of its own."""
        self._withhold("transaction", "committed its transaction(), which is undone")
        self.outcome = outcome

    def spawned(self, jobs: Sequence[Job[Any] | Parcel]) -> None:
        """What would be stored with the job's success."""
        says = f"spawned {_jobs(count_jobs(jobs))}: {_listed(jobs)}"
        self._withhold("spawn", says, [*map(_described, jobs)])

    # Look after

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
        del secrets  # not for the eyes of whoever reads what was withheld
        whom = f"flow {flow}" if flow is not None else ", ".join(ids)
        data = {"jobs": list(ids), "flow": flow, **author_and_reason(author, reason, part_of)}
        self._withhold(action, f"{_DONE[action]} {whom}", data)
        return list(ids)

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        data = {"name": name, "value": msgspec.Raw(value), "author": author, "reason": reason}
        self._withhold("signal", f"sent the signal {name}: {value.decode()}", data)
        return []

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        del author, reason
        self._withhold(*_put(record))
        return record

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        del author, reason
        name = kind.__name__.lower()
        self._withhold(name, f"cleared the {name} {record_id}")
        return True

    def audit(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        event = {**(data or {}), "author": author, "reason": reason}
        self._withhold(kind, f"recorded: {kind}", event)

    # Look: the store's word, with what was noted here

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        notes = {(note.kind, note.name): note for note in self._store.notes(job_id, kind)}
        for key, note in self._notes.get(job_id, {}).items():
            if kind in {None, note.kind}:
                notes.pop(key, None)  # the latest goes last
                notes[key] = note
        return list(notes.values())

    def flow(self, flow_id: str) -> FlowRow | None:
        row = self._store.flow(flow_id)
        if row is None or flow_id not in self._states:
            return row
        return msgspec.structs.replace(row, state=merged(row.state, self._states[flow_id]))


class _Undone:
    """A transaction of the store that is rolled back, whatever becomes of the job."""

    def __init__(self, broker: WithholdingBroker, transaction: Transaction) -> None:
        self._broker = broker
        self._transaction = transaction
        self.connection = transaction.connection
        if isinstance(self.connection, sqlite3.Connection):
            # There a task that commits by itself would get through: nothing is above it.
            self.connection.set_authorizer(_no_end)

    def settle(self, job: Job[Any], outcome: Outcome) -> bool:
        del job
        self.rollback()
        self._broker.settled(outcome)
        return True

    def rollback(self) -> None:
        if isinstance(self.connection, sqlite3.Connection):
            self.connection.set_authorizer(None)
        self._transaction.rollback()

    def broken_by(self, error: BaseException) -> bool:
        return self._transaction.broken_by(error)


def _no_end(action: int, first: str | None, *_: Any) -> int:
    ends = action == sqlite3.SQLITE_TRANSACTION and first in {"COMMIT", "ROLLBACK"}
    return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK


class _Join:
    """Jobs on their way into a transaction of the caller's, where they do not arrive."""

    prepared = True

    def __init__(
        self, broker: WithholdingBroker, jobs: Sequence[Job[Any] | Parcel], flow: Flow | None
    ) -> None:
        self._broker = broker
        self._jobs = jobs
        self._flow = flow

    def asks(self, caller: Any) -> Generator[Any, Any, Enqueued]:
        del caller
        yield from ()
        return self._broker.enqueue(self._jobs, flow=self._flow)


def _refuse(verb: str, *_: Any, **__: Any) -> NoReturn:
    raise Refused(
        f"{verb}: this job runs under `penstock debug`, which writes nothing to the store"
    )


def _put(record: Record) -> tuple[str, str]:
    match record:
        case Rule():
            return "rule", f"set a {record.kind} of {record.target}"
        case Schedule():
            return "schedule", f"put the schedule {record.name}"
        case Mark():
            return "mark", f"put the mark of the lake {record.lake}"
        case Subscription():
            return "subscription", f"put the subscription {record.name}"
        case QueueOptions():
            return "queue", f"put the options of the queue {record.queue}"
        case _:
            return "record", f"put a {type(record).__name__}"


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _listed(jobs: Sequence[Job[Any] | Parcel]) -> str:
    named = [
        f"{len(job.bodies):,} of {job.lane.task}" if isinstance(job, Parcel) else job.task
        for job in jobs[:_SHOWN]
    ]
    more = [] if len(jobs) <= _SHOWN else [f"and {len(jobs) - _SHOWN:,} more"]
    return ", ".join([*named, *more])


def _described(job: Job[Any] | Parcel) -> dict[str, Any]:
    if isinstance(job, Parcel):
        return {"task": job.lane.task, "queue": job.lane.queue, "jobs": len(job.bodies)}
    return {"task": job.task, "queue": job.queue, "jobs": 1, "key": job.key}
