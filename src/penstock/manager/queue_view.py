"""A broker as a token sees it that is of some queues alone.

Jobs of other queues are not there: reads leave them out, writes to them are refused or say that
they are stale. What cannot be cut by queue (flows by name, the history as a whole, acts on a flow)
is refused. A verb that is not here is refused as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from penstock.broker.environment import Environment
from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions, only_declares
from penstock.broker.records import Record
from penstock.broker.values import Action, Batch, Claimed, Enqueued, Renewed, Settlement, Wanted
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.errors import Refused
from penstock.flows.flow import Flow
from penstock.job import Job, Outcome, Parcel
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Decision, Schedule

AnyJob = Job[Any]


class QueueView:
    """The verbs that can be cut by queue."""

    def __init__(self, broker: Broker, queues: frozenset[str], name: str) -> None:
        self._broker = broker
        self._queues = queues
        self._name = name
        self.clock, self.traits = broker.clock, broker.traits
        self.gauge = broker.gauge

    def __getattr__(self, verb: str) -> Any:
        def refused(*_: Any, **__: Any) -> NoReturn:
            self._refuse(verb)

        return refused

    def _refuse(self, verb: str) -> NoReturn:
        raise Refused(
            f"the token of {self._name} is of the queues {', '.join(sorted(self._queues))}, and "
            f"{verb} may concern others: it needs a token of all queues"
        )

    def _check_queues(self, jobs: Iterable[AnyJob | Parcel]) -> None:
        for job in jobs:
            queue = job.lane.queue if isinstance(job, Parcel) else job.queue
            if queue not in self._queues:
                raise Refused(
                    f"the token of {self._name} is not of the queue {queue!r}; nothing was written"
                )

    def _own(self, rows: Iterable[WorkerRow]) -> list[WorkerRow]:
        return [
            row for row in rows if row.queues is not None and self._queues.issuperset(row.queues)
        ]

    def enqueue(
        self,
        jobs: Sequence[AnyJob | Parcel],
        *,
        batch: Batch | None = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        self._check_queues(jobs)
        return self._broker.enqueue(jobs, batch=batch, flow=flow)

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        narrowed = [self._narrow(each) for each in wanted]
        self._check_workers(each.worker for each in narrowed)
        held = self._held(settlements)
        kept = [pair for pair in held if pair is not None]
        claimed = self._broker.claim(narrowed, kept)
        answers = iter(claimed.accepted)
        accepted = [pair is not None and next(answers) for pair in held]
        return replace(claimed, accepted=accepted)

    def _narrow(self, wanted: Wanted) -> Wanted:
        queues = self._queues if wanted.queues is None else self._queues & set(wanted.queues)
        return replace(wanted, queues=sorted(queues), worker=self._narrow_row(wanted.worker))

    def _narrow_row(self, row: WorkerRow) -> WorkerRow:
        queues = self._queues if row.queues is None else self._queues & set(row.queues)
        return replace(row, queues=tuple(sorted(queues)))

    def _check_workers(self, rows: Iterable[WorkerRow]) -> None:
        """Refuse the name of a worker of other queues: renewing it would keep or free its jobs."""
        ids = {row.id for row in rows}
        there = [row for row in self._broker.workers() if row.id in ids]
        if len(self._own(there)) < len(there):
            raise Refused(f"the token of {self._name} is not of the queues of that worker")

    def _held(self, pairs: Sequence[Settlement]) -> list[tuple[AnyJob, Outcome] | None]:
        """As the store has the jobs; None for those of other queues, and for stale ones."""
        if not pairs:
            return []
        stored = self._broker.get_many([job.id for job, _ in pairs])
        held: list[tuple[AnyJob, Outcome] | None] = []
        for job, outcome in pairs:
            self._check_queues(outcome.spawned)
            there = stored.get(job.id)
            if there is None or there.queue not in self._queues or there.attempt != job.attempt:
                held.append(None)
            else:
                held.append((there, outcome))
        return held

    def settle(self, pairs: Sequence[Settlement]) -> list[bool | None]:
        held = self._held(pairs)
        answers = iter(self._broker.settle([pair for pair in held if pair is not None]))
        return [pair is not None and next(answers) for pair in held]

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        rows = [self._narrow_row(row) for row in workers]
        self._check_workers(rows)
        return self._broker.renew(rows, holding)

    def note(self, job: AnyJob, note: Note) -> bool:
        there = self.get(job.id)
        return there is not None and there.attempt == job.attempt and self._broker.note(there, note)

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        if dead is not None and dead not in {row.id for row in self.workers()}:
            return 0
        return self._broker.recover(by, dead, started)

    def prune(self, before: float) -> int:  # noqa: ARG002  a worker of all queues does it
        return 0

    def get(self, job_id: str) -> AnyJob | None:
        job = self._broker.get(job_id)
        return job if job is not None and job.queue in self._queues else None

    def get_many(self, ids: Sequence[str]) -> dict[str, AnyJob]:
        found = self._broker.get_many(ids)
        return {name: job for name, job in found.items() if job.queue in self._queues}

    def why(self, job_id: str) -> Why:
        if self.get(job_id) is None:
            return Why(job_id, None, "unknown", f"job {job_id} is not known")
        return self._broker.why(job_id)

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        return [] if self.get(job_id) is None else self._broker.notes(job_id, kind)

    def outputs(self, node: str) -> Any:
        if self.get(node) is None:
            self._refuse("outputs")
        return self._broker.outputs(node)

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        queues = self._queues.intersection(filter.queue) if filter.queue else self._queues
        if not queues:
            return Page([])
        return self._broker.find(replace(filter, queue=tuple(sorted(queues))), after, limit)

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        if job is None:
            self._refuse("history")
        rows = self._broker.history(after, limit, job, kind=kind, before=before)
        return [row for row in rows if row.queue in self._queues]

    def count(self) -> list[Count]:
        return [count for count in self._broker.count() if count.queue in self._queues]

    def workers(self) -> list[WorkerRow]:
        return self._own(self._broker.workers())

    def records(self, kind: type[Record]) -> list[Any]:
        if kind is Rule:
            rules = self._broker.records(Rule)
            return [rule for rule in rules if rule.queue is None or rule.queue in self._queues]
        if kind is QueueOptions:
            options = self._broker.records(QueueOptions)
            return [each for each in options if each.queue in self._queues]
        if kind is Environment:  # by which a worker knows whether it may run here
            return self._broker.records(Environment)
        if kind is not Schedule:
            self._refuse("records")
        kept = self._broker.records(Schedule)
        return [each for each in kept if each.job.queue in self._queues]

    def put(self, record: Any, author: str = "", reason: str = "") -> Any:
        if isinstance(record, Schedule):
            self._check_schedule(record)
        elif isinstance(record, QueueOptions) and (
            record.queue in self._queues or only_declares(record)
        ):
            if record.queue not in self._queues:
                return record  # a program declares all its queues: not written, and no error
        elif not isinstance(record, Rule) or record.queue not in self._queues:
            self._refuse("put")
        return self._broker.put(record, author, reason)

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        self._check_schedule(schedule)
        self._check_queues(each.job for each in decisions if each.job is not None)
        for each in decisions:
            if each.cancels is not None and self.get(each.cancels) is None:
                return False
        return self._broker.decide_schedule(schedule, decisions)

    def _check_schedule(self, schedule: Schedule) -> None:
        there = [kept for kept in self._broker.records(Schedule) if kept.name == schedule.name]
        self._check_queues([schedule.job, *(kept.job for kept in there)])

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        if kind is Schedule:
            own = {each.name for each in self.records(Schedule)}
        elif kind is Rule:
            own = {rule.id for rule in self.records(Rule) if rule.queue is not None}
        else:
            self._refuse("clear")
        return record_id in own and self._broker.clear(kind, record_id, author, reason)

    def act(
        self,
        action: Action,
        ids: Sequence[str] = (),
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        **options: Any,
    ) -> list[str]:
        if flow is not None:
            self._refuse("an act on a whole flow")
        return self._broker.act(action, list(self.get_many(ids)), author, reason, **options)
