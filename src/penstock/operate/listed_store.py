"""A broker as a person with an access list sees it: what is not on the list is not there.

Jobs, counts, rows of the history, rules, schedules and workers of others are left out of reads, and
writes to them are refused or change nothing. What cannot be cut by app and queue is refused: flows,
signals, subscriptions, lakes. So is every verb that is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from penstock.broker.environment import Environment
from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions
from penstock.broker.span_stats import SPANS, SpanStats
from penstock.broker.values import Action, Batch, Enqueued
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.flows.flow import Flow, FlowPage
from penstock.job import Job, Parcel
from penstock.operate.access_list import AccessList
from penstock.operate.refusals import Forbidden
from penstock.operate.to_json import event_data
from penstock.operate.worker_settings import jobs_by_worker
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Decision, Schedule

AnyJob = Job[Any]
MOST_LOOKED = 20_000  # of the last rows of the history, in one call
_PAGE = 500


class ListedStore:
    """The verbs that pages and REST use, cut to a list."""

    def __init__(self, broker: Broker, only: AccessList, name: str) -> None:
        self._broker = broker
        self._only = only
        self._name = name
        self.clock = broker.clock
        self.audit = broker.audit
        self.traits = replace(broker.traits, queue_bytes=self._queue_bytes)

    def __getattr__(self, verb: str) -> Any:
        def refused(*_: Any, **__: Any) -> NoReturn:
            self._refuse(verb)

        return refused

    def _refuse(self, what: str) -> NoReturn:
        raise Forbidden(
            f"{self._name} has the access list {self._only.words}, and {what} may concern others"
        )

    def _sees(self, job: AnyJob) -> bool:
        return self._only.sees(job.app, job.queue)

    def _queue_bytes(self) -> dict[str, int]:
        found = self._broker.traits.queue_bytes()
        return {queue: size for queue, size in found.items() if self._only.sees(None, queue)}

    # Jobs

    def get(self, job_id: str) -> AnyJob | None:
        job = self._broker.get(job_id)
        return job if job is not None and self._sees(job) else None

    def get_many(self, ids: Sequence[str]) -> dict[str, AnyJob]:
        found = self._broker.get_many(ids)
        return {id: job for id, job in found.items() if self._sees(job)}

    def why(self, job_id: str) -> Why:
        if self.get(job_id) is None:
            return Why(job_id, None, "unknown", f"job {job_id} is not known")
        return self._broker.why(job_id)

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        return [] if self.get(job_id) is None else self._broker.notes(job_id, kind)

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        queues = _both(filter.queue, self._only.queues)
        apps = _both(filter.app, self._only.apps)
        if queues is None or apps is None:
            return Page([])
        return self._broker.find(replace(filter, queue=queues, app=apps), after, limit)

    def count(self) -> list[Count]:
        return [each for each in self._broker.count() if self._only.sees(each.app, each.queue)]

    def enqueue(
        self,
        jobs: Sequence[AnyJob | Parcel],
        *,
        batch: Batch | None = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        for job in jobs:
            lane = job.lane
            # A task belongs to the queue that the code names, wherever this one job is to run.
            task = None if isinstance(job, Parcel) or job.owner is None else job.owner.task_of(job)
            of_task = lane.queue if task is None else task.queue
            if not (self._only.sees(lane.app, lane.queue) and self._only.sees(lane.app, of_task)):
                self._refuse(f"a job of {lane.task} in the queue {lane.queue}")
            if not isinstance(job, Parcel) and job.unique is not None and job.unique.replace:
                self._refuse("to take the place of another job")
        return self._broker.enqueue(jobs, batch=batch, flow=flow)

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

    # Flows may have jobs anywhere: to who has a list there are none.

    def flow(self, flow_id: str) -> None:
        del flow_id

    def flows(self, *_: Any, **__: Any) -> FlowPage:
        return FlowPage([])

    # The history

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        if job is not None:
            known = self.get(job) is not None
            rows = self._broker.history(after, limit, job, kind=kind, before=before)
            return [row for row in rows if known or self._sees_row(row)]
        if after is None:
            return self._last_rows(limit, kind, before)
        kept: list[Event] = []
        page = max(limit, _PAGE)
        while len(kept) < limit:  # to the end: who reads on from its last row misses none
            rows = self._broker.history(after, page)
            kept += [seen for row in rows if (seen := self._cut(row)) is not None]
            if len(rows) < page:
                break
            after = rows[-1].position
        return kept[:limit]

    def _last_rows(
        self, limit: int, kind: str | Collection[str] | None, before: Position | None
    ) -> list[Event]:
        kept: list[Event] = []
        looked, page = 0, max(limit, _PAGE)
        while len(kept) < limit and looked < MOST_LOOKED:
            rows = self._broker.history(None, page, kind=kind, before=before)
            kept = [seen for row in rows if (seen := self._cut(row)) is not None] + kept
            if len(rows) < page:
                break
            looked, before = looked + len(rows), rows[0].position
        return kept[-limit:]

    def _cut(self, row: Event) -> Event | None:
        if row.kind in SPANS.values():
            return self._cut_span(row) if self._only.apps is None else None
        return row if self._sees_row(row) else None

    def _cut_span(self, row: Event) -> Event:
        """What ended by task and queue; workers and deploys are of others, too."""
        stats = msgspec.json.decode(row.data or b"{}", type=SpanStats)
        cut = SpanStats(
            at=stats.at,
            seconds=stats.seconds,
            read_at=stats.read_at,
            tasks=[each for each in stats.tasks if self._only.sees(None, each.queue)],
            queues=[each for each in stats.queues if self._only.sees(None, each.queue)],
            holds=stats.holds,
        )
        return replace(row, data=msgspec.json.encode(cut))

    def _sees_row(self, row: Event) -> bool:
        data = event_data(row)
        if row.kind == "schedule" and row.job is None:
            return data.get("schedule") in self._schedules
        queue = row.queue or data.get("queue")
        return self._only.sees(row.app, queue if isinstance(queue, str) else None)

    @cached_property
    def _schedules(self) -> set[str]:
        return {each.name for each in self.records(Schedule)}

    # Workers and records

    def workers(self) -> list[WorkerRow]:
        """Who serves one of the queues, with what can be seen of it."""
        found = [row for row in self._broker.workers() if self._serves(row)]
        held = jobs_by_worker(self.find) if found else {}
        return [self._cut_worker(row, len(held.get(row.id, []))) for row in found]

    def _serves(self, row: WorkerRow) -> bool:
        own, apps = self._only.queues, self._only.apps
        return (apps is None or row.app in apps) and (
            own is None or row.queues is None or not own.isdisjoint(row.queues)
        )

    def _cut_worker(self, row: WorkerRow, running: int) -> WorkerRow:
        own, queues = self._only.queues, row.queues
        if own is None:
            return replace(row, running=running)
        served = own if queues is None else own.intersection(queues)
        put_back = {name: each for name, each in row.put_back.items() if name in own}
        return replace(
            row, tasks={}, places={}, queues=tuple(sorted(served)), put_back=put_back,
            running=running, began=None,
        )  # fmt: skip

    def records(self, kind: type[Any]) -> list[Any]:
        if kind not in {Rule, Schedule, QueueOptions, Subscription, Environment}:
            return []
        return [each for each in self._broker.records(kind) if self._sees_record(each)]

    def _sees_record(self, record: Any) -> bool:
        if isinstance(record, Rule):
            return self._rules(record) or _is_about_everything(record)
        if isinstance(record, Schedule):
            return self._sees(record.job)
        if isinstance(record, QueueOptions):
            return self._only.sees(record.app, record.queue)
        return isinstance(record, Environment)

    def _rules(self, rule: Rule) -> bool:
        """Whether the rule is about nothing but what is on the list; a rule names no app."""
        return rule.queue is not None and self._only.sees(None, rule.queue)

    def put(self, record: Any, author: str = "", reason: str = "") -> Any:
        if isinstance(record, Schedule):
            self._check_schedule(record)
        elif isinstance(record, QueueOptions):
            self._check_options(record.id, record)
        elif not (isinstance(record, Rule) and self._rules(record)):
            self._refuse(f"to set a {type(record).__name__.lower()} of this kind")
        return self._broker.put(record, author, reason)

    def clear(self, kind: type[Any], record_id: str, author: str = "", reason: str = "") -> bool:
        seen: set[str] = set()
        if kind is Rule:
            seen = {rule.id for rule in self._broker.records(Rule) if self._rules(rule)}
        elif kind is Schedule:
            seen = {each.name for each in self.records(Schedule)}
        elif kind is QueueOptions:
            seen = {each.id for each in self.records(QueueOptions) if self._may_set(each)}
        else:
            self._refuse(f"to clear a {kind.__name__.lower()}")
        return record_id in seen and self._broker.clear(kind, record_id, author, reason)

    def _check_options(self, what: str, options: QueueOptions) -> None:
        if not self._may_set(options):
            self._refuse(f"the options of the queue {what}")

    def _may_set(self, options: QueueOptions) -> bool:
        # Order and limits of a queue hold for every app that uses it.
        return self._only.apps is None and self._only.sees(options.app, options.queue)

    def _check_schedule(self, schedule: Schedule) -> None:
        kept = [each for each in self._broker.records(Schedule) if each.name == schedule.name]
        if not all(self._sees(each.job) for each in (schedule, *kept)):
            self._refuse(f"the schedule {schedule.name}")

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        self._check_schedule(schedule)
        self._check_jobs(each.job for each in decisions if each.job is not None)
        if any(each.cancels and self.get(each.cancels) is None for each in decisions):
            raise Refused(f"schedule {schedule.name}: the job of its last slot is not known")
        return self._broker.decide_schedule(schedule, decisions)

    def _check_jobs(self, jobs: Iterable[AnyJob]) -> None:
        for job in jobs:
            if not self._sees(job):
                self._refuse(f"a job of {job.task} in the queue {job.queue}")


def _both(wanted: tuple[str, ...], seen: frozenset[str] | None) -> tuple[str, ...] | None:
    """What a filter may ask for; None: nothing, and () all."""
    if seen is None:
        return wanted
    found = seen.intersection(wanted) if wanted else seen
    return tuple(sorted(found)) or None


def _is_about_everything(rule: Rule) -> bool:
    return all(each is None for each in (rule.queue, rule.task, rule.version, rule.tag, rule.key))
