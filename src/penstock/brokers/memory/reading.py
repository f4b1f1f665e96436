"""Bulk reading and gauges of the memory broker: the same promises, over dictionaries."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.app.clock import AnyClock
from penstock.broker.gauge import MINUTE, gauges_of, minute_at
from penstock.broker.position import BEGINNING, Position, ahead
from penstock.broker.quota import LimitUse
from penstock.broker.slice import HISTORY, Reach, Selection, Slice
from penstock.broker.span_stats import SPANS, EndedAttempts, SampledAttempt, counted, minutes_of
from penstock.broker.views import MEASURED, Count, Event, WorkerRow
from penstock.brokers.arrow import event_batches, job_batches, selected_job
from penstock.brokers.memory.store import MemoryStore
from penstock.brokers.positions import (
    FARTHEST_ID,
    FARTHEST_POSITION,
    even_bounds,
    id_number,
    number_of,
    own,
    slices_between,
)
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind, rule_over_job


class MemoryReading(ABC):
    """Limit uses, gauge, reach, slices, scan."""

    clock: AnyClock
    _lock: threading.Condition
    _store: MemoryStore

    @abstractmethod
    def count(self) -> list[Count]: ...

    @abstractmethod
    def workers(self) -> list[WorkerRow]: ...

    @abstractmethod
    def records(self, kind: type[Any]) -> list[Any]: ...

    def limit_uses(self) -> list[LimitUse]:
        with self._lock:
            now, store = self.clock.monotonic(), self._store
            return [
                LimitUse(
                    rule.id,
                    store.holders(rule, None),
                    [(now - at, jobs) for at, jobs in store.use_of(rule, None).starts],
                )
                for rule in self.records(Rule)
                if rule.kind is RuleKind.LIMIT and not rule.per_key
            ]

    def gauge(self) -> int:
        with self._lock:
            store, now = self._store, self.clock.now()
            minute = minute_at(now)
            last = store.gauged
            if not last.due(minute):
                return 0
            gauges = gauges_of(self.count(), self.oldest_due(), last.queues)
            rows = store.rows_after(last.counted.position)
            position = number_of(rows[-1].position) if rows else last.counted.position
            minutes = minutes_of(*_ended(rows), now)
            alive = [
                (each.started_at, each.code)
                for each in self.workers()
                if each.alive and each.queues != ()
            ]
            kept, spans = counted(last.counted, minutes, gauges, alive, position, now)
            store.gauged = last.after(minute, gauges, kept)
            for span in spans:
                store.record(SPANS[span.seconds], at=span.at, data=span)
            for gauge in gauges:
                store.record("gauge", at=minute * MINUTE, data=gauge, queue=gauge.queue)
            return len(gauges)

    def oldest_due(self) -> dict[str, float]:
        """How long the oldest due job of each queue has been due that may run."""
        now, oldest = self.clock.now(), dict[str, float]()
        rules = self.records(Rule)
        for job in self._store.jobs.values():
            due = job.enqueued_at if job.run_at is None else job.run_at
            if job.state is State.READY and due <= now and not rule_over_job(rules, job, now):
                oldest[job.queue] = max(oldest.get(job.queue, 0.0), now - due)
        return oldest

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,  # noqa: ARG002  nobody writes without the lock
        *,
        until: Position | None = None,
    ) -> Reach:
        with self._lock:
            if own(after) > self._store.newest:
                raise ahead(after, self._store.newest)
            last = self._store.newest if until is None else own(until)
            rows = [row for row in self._store.history if after < row.position <= last]
            wanted = [row.position for row in rows if kind_is(selection, row)]
            if at_most is not None and len(wanted) >= max(at_most, 1):
                return Reach(self._store.id, wanted[max(at_most, 1) - 1], full=True)
            return Reach(self._store.id, rows[-1].position if rows else after)

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        with self._lock:
            if selection.table not in HISTORY:
                ids = sorted(uuid.UUID(job_id).int for job_id in self._store.jobs)
                bounds = [ids[place] for place in even_bounds(0, len(ids), at_most)]
                return slices_between(selection, 0, FARTHEST_ID, bounds)
            low, high = number_of(after), FARTHEST_POSITION if until is None else number_of(until)
            rows = [number_of(row.position) for row in self._store.history]
            first, last = max(low, min(rows, default=0)), min(high, max(rows, default=0))
            return slices_between(selection, low, high, even_bounds(first, last, at_most))

    def scan(self, part: Slice) -> Iterator[Any]:
        selection = part.selection
        if selection.table in HISTORY:
            low, high = own(part.after), own(part.until)
            with self._lock:
                events = [
                    row
                    for row in self._store.history
                    if low < row.position <= high and selected(selection, row)
                ]
            return event_batches(selection.table, events)
        after, until = id_number(part.after), id_number(part.until)
        with self._lock:
            jobs = [
                job
                for job in self._store.jobs.values()
                if after < uuid.UUID(job.id).int <= until and selected_job(selection, job)
            ]
        return job_batches(selection.table, jobs)


def kind_is(selection: Selection, row: Event) -> bool:
    kind = selection.kind
    return row.kind == kind if kind else row.kind not in {"attempt", *MEASURED}


def selected(selection: Selection, row: Event) -> bool:
    return (
        kind_is(selection, row)
        and (not selection.queue or row.queue in selection.queue)
        and (not selection.task or row.task in selection.task)
        and (not selection.state or row.state in selection.state)
        and (selection.since is None or row.at >= selection.since)
        and (selection.until is None or row.at <= selection.until)
    )


def _ended(rows: Iterable[Event]) -> tuple[list[EndedAttempts], list[SampledAttempt]]:
    """The attempts among these rows, each on its own."""
    ended: list[EndedAttempts] = []
    sampled: list[SampledAttempt] = []
    for row in rows:
        if row.kind != "attempt" or row.started_at is None:
            continue
        names, minute = (row.queue or "", row.task or ""), minute_at(row.at)
        due = row.run_at or row.enqueued_at or row.started_at
        ran, waited = max(0.0, row.at - row.started_at), max(0.0, row.started_at - due)
        ended.append(EndedAttempts(*names, row.worker or "", row.state, minute, 1, ran, waited))
        sampled.append(SampledAttempt(*names, minute, ran, waited))
    return ended, sampled
