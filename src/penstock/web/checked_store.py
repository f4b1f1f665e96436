"""The store as one request may use it: every read and every action checks the person's role.

Pages and REST have no other way to the store, so no handler can forget the check. Actions are those
of `operate.actions`; a GET request may not call them, whatever the role. Declared secrets are
hidden in everything that is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.app import App
from penstock.broker.filter import Filter
from penstock.broker.gauge import Gauge, last_gauges
from penstock.broker.lake_mark import Mark
from penstock.broker.position import Position
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.enqueue.ids import parse_id
from penstock.enqueue.secrets import HIDDEN, redact, without_arguments
from penstock.errors import PenstockError, Refused
from penstock.flows.flow import FlowPage, FlowRow, NodeRow
from penstock.flows.status import JobsByNode, Took, flow_with, jobs_of, look_at, times_of
from penstock.job import Job, State
from penstock.operate.actions import Actions
from penstock.operate.audit import MOST_LOOKED, AuditPage, AuditQuery, read_audit
from penstock.operate.backfill_status import BackfillStatus, backfilled_tasks, read_backfill
from penstock.operate.datasets import DatasetRange, pipeline_of
from penstock.operate.doctor import Finding, examine, examine_jobs, promise_of
from penstock.operate.queue_settings import options_of_queues
from penstock.operate.roles import OPERATIONS, Person, Role, needs
from penstock.operate.shards_view import ShardsView, look_at_shards
from penstock.operate.trends import Trend, TrendFilter, read_trend
from penstock.operate.why_named import why_named
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule
from penstock.web.count_cache import CountCache

if TYPE_CHECKING:
    from penstock.operate.dataset_json import (
        DatasetNodeJson,
        DatasetSummary,
        GridJson,
        PartitionWhy,
        PlanJson,
    )
    from penstock.task.dataset_plan import PipelineRun

MOST_IDS = 1000
MOST_LISTED = 100  # in the address of a read
MOST_COUNTED = 5000  # jobs that a rule is tried on one by one


class NeedsPost(PenstockError):
    """A GET request tried to change something."""


class CheckedStore(Actions):
    """The store for one request of one person."""

    most_ids = MOST_IDS
    most_counted = MOST_COUNTED

    def __init__(
        self,
        broker: Broker,
        person: Person,
        *,
        may_change: bool,
        hide_arguments: bool = False,
        count_cache: CountCache | None = None,
    ) -> None:
        super().__init__(broker, person)
        self.may_change = may_change
        self.hide_arguments = hide_arguments
        self.count_cache = count_cache or CountCache()

    def check(self, operation: str) -> None:
        """Refuse unless the person has the role for it, and the method allows it."""
        super().check(operation)
        if OPERATIONS[operation].changes and not self.may_change:
            raise NeedsPost(f"{operation} changes something: send it with POST")

    def changed(self) -> None:
        self.count_cache.clear()

    # Reads

    @needs(Role.VIEW)
    def get(self, id: str) -> Job[Any] | None:
        job = self._broker.get(parse_id(id))
        return None if job is None else self._shown(job)

    @needs(Role.VIEW)
    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        """The jobs of these ids that are known."""
        if len(ids) > MOST_LISTED:
            raise Refused(f"{len(ids):,} ids: at most {MOST_LISTED:,} in one call")
        found = self._broker.get_many([parse_id(id) for id in ids])
        return {id: self._shown(job) for id, job in found.items()}

    @needs(Role.VIEW)
    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        """Jobs that match."""
        by_argument = filter.args or (filter.exclude is not None and filter.exclude.args)
        if by_argument and self.hide_arguments:
            raise Refused("arguments are hidden here: leave out arg.NAME")
        page = self._broker.find(filter, after or None, limit)
        return Page([self._shown(job) for job in page.jobs], page.after, page.examined)

    @needs(Role.VIEW)
    def count(self) -> list[Count]:
        return self.count_cache.get(self._broker.count)

    @needs(Role.VIEW)
    def queue_options(self, queue: str | None = None) -> list[QueueOptions]:
        """The options of every queue, or of those of this name."""
        return options_of_queues(self._broker, queue)

    @needs(Role.VIEW)
    def queue_bytes(self) -> Mapping[str, int]:
        """About how much memory the jobs of each queue take; empty where they are on a disk."""
        return self._broker.traits.queue_bytes()

    @needs(Role.VIEW)
    def history(
        self,
        after: Position | None = None,
        limit: int = 100,
        job: str | None = None,
        *,
        kind: str | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        id = None if job is None else parse_id(job)
        rows = self._broker.history(after, limit, id, kind=kind, before=before)
        return [self._event_shown(row) for row in rows] if self.hide_arguments else rows

    @needs(Role.VIEW)
    def audit(
        self,
        wanted: AuditQuery,
        before: Position | None = None,
        limit: int = 100,
        most_looked: int = MOST_LOOKED,
    ) -> AuditPage:
        """Who did what, newest first."""
        return read_audit(self._broker, wanted, before, limit, most_looked)

    @needs(Role.VIEW)
    def promise(self, url: str | None) -> str | None:
        """What an accepted job survives in this store; None if its URL is not known."""
        return None if url is None else promise_of(url)

    @needs(Role.VIEW)
    def examine(self, url: str | None, known: Mapping[str, int] | None = None) -> list[Finding]:
        """The doctor's findings; without a URL only those about jobs and workers."""
        return examine_jobs(self._broker, known) if url is None else examine(url, known)

    @needs(Role.VIEW)
    def decisions(self, limit: int = 1000) -> list[Event]:
        """The last decisions of schedules, oldest first."""
        return self._broker.history(None, limit, kind="schedule")

    @needs(Role.VIEW)
    def gauges(self, limit: int = 1000) -> dict[str, tuple[float, Gauge]]:
        """The last gauge of each queue and its time, among the last gauges."""
        return last_gauges(self._broker.history(None, limit, kind="gauge"))

    @needs(Role.VIEW)
    def trend(self, over: str, only: TrendFilter) -> Trend:
        """Rates, waits, runs and depth over a range, up to now."""
        return read_trend(self._broker.history, self.now, over, only)

    @needs(Role.VIEW)
    def notes(self, id: str, kind: str | None = None) -> list[Note]:
        notes = self._broker.notes(parse_id(id), kind)
        if not self.hide_arguments:
            return notes
        return [note for note in notes if note.kind in {"progress", "log"}]

    @needs(Role.VIEW)
    def why(self, id: str) -> Why:
        return self._broker.why(parse_id(id))

    @needs(Role.VIEW)
    def why_named(self, target: str) -> tuple[str, list[Finding]]:
        """The findings about a queue, a task, a worker, a flow or a schedule."""
        return why_named(self._broker, target)

    @needs(Role.VIEW)
    def rules(self) -> list[Rule]:
        return self._broker.records(Rule)

    @needs(Role.VIEW)
    def workers(self) -> list[WorkerRow]:
        return self._broker.workers()

    @needs(Role.VIEW)
    def missing(self) -> tuple[str, ...]:
        """A sentence for each shard that does not answer: what it has is left out of a page."""
        return self._broker.traits.missing()

    @needs(Role.VIEW)
    def shards(self) -> ShardsView:
        return look_at_shards(self._broker)

    @needs(Role.VIEW)
    def schedules(self) -> list[Schedule]:
        return [
            msgspec.structs.replace(each, job=self._shown(each.job))
            for each in self._broker.records(Schedule)
        ]

    @needs(Role.VIEW)
    def flow(self, id: str) -> FlowRow | None:
        """The flow of this id, or the one that has this job."""
        found = flow_with(self._broker, parse_id(id))
        return None if found is None else self._flow_shown(found)

    @needs(Role.VIEW)
    def look_at_flow(self, flow: FlowRow) -> JobsByNode:
        """The jobs of a flow that run, failed, or wait for a signal."""
        return look_at(self._broker, flow)

    @needs(Role.VIEW)
    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        page = self._broker.flows(name, find, None if not after else parse_id(after), limit)
        return FlowPage([self._flow_shown(each) for each in page.flows], page.after)

    @needs(Role.VIEW)
    def flow_jobs(
        self, flow: FlowRow, node: str, state: State | None = None, after: str | None = None
    ) -> Page:
        """Jobs of a node, newest first."""
        page = jobs_of(self._broker, flow, node, state, after or None)
        return Page([self._shown(job) for job in page.jobs], page.after, page.examined)

    @needs(Role.VIEW)
    def flow_times(self, flow: FlowRow, nodes: Sequence[NodeRow]) -> dict[str, Took]:
        """How long these nodes took so far."""
        return times_of(self._broker, flow, nodes)

    @needs(Role.VIEW)
    def backfilled_tasks(self) -> dict[str, int]:
        return backfilled_tasks(self._broker, self._broker.records(Rule))

    @needs(Role.VIEW)
    def backfill(self, task: str) -> BackfillStatus:
        """The status of each partition of a task."""
        status = read_backfill(self._broker, task)
        return status._replace(
            partitions=[each._replace(job=self._shown(each.job)) for each in status.partitions]
        )

    # Datasets: the app says what they are made of, and their tables where they stand

    @needs(Role.VIEW)
    def dataset_nodes(self, app: App) -> list[DatasetNodeJson]:
        from penstock.spark.datasets.status import node_json

        pipeline = pipeline_of(app)
        return [node_json(pipeline, name) for name in pipeline.graph.order]

    @needs(Role.VIEW)
    def dataset_summaries(self, app: App, most: int) -> list[DatasetSummary]:
        """Each dataset, with its newest partitions."""
        pipeline = pipeline_of(app)
        from penstock.spark.datasets.status import summarize

        return summarize(pipeline, most)

    @needs(Role.VIEW)
    def dataset_grid(self, app: App, asked: DatasetRange, most: int) -> GridJson:
        """The last partitions of a dataset in a range."""
        pipeline = pipeline_of(app)
        from penstock.spark.datasets.status import read_grid

        return read_grid(pipeline, asked, most)

    @needs(Role.VIEW)
    def dataset_plan(self, app: App, asked: DatasetRange) -> PlanJson:
        """What datasets lack."""
        pipeline = pipeline_of(app)
        from penstock.spark.datasets.status import plan_json

        plans = pipeline.plan(pipeline.asked_partitions(asked.in_pipeline(pipeline)))
        return plan_json(pipeline, pipeline.standings(plans))

    @needs(Role.VIEW)
    def dataset_why(self, app: App, dataset: str, partition: str) -> PartitionWhy:
        """Why a partition is as it is, and what made it."""
        pipeline = pipeline_of(app)
        from penstock.spark.datasets.status import why_partition

        return why_partition(pipeline, dataset, partition)

    @needs(Role.VIEW)
    def foresee_datasets(self, app: App, asked: DatasetRange, *, again: bool) -> PipelineRun:
        """What a run would enqueue."""
        pipeline = pipeline_of(app)
        return pipeline.fill(asked.in_pipeline(pipeline), again=again, dry_run=True)

    @needs(Role.VIEW)
    def lakes(self) -> list[Mark]:
        return self._broker.records(Mark)

    # Hidden arguments

    def copy(self, id: str, app: App | None, arguments: str | None = None, reason: str = "") -> str:
        if arguments is not None and self.hide_arguments:
            raise Refused("arguments are hidden here: copy the job as it is")
        return super().copy(id, app, arguments, reason)

    def schedule(self, name: str) -> Schedule:
        found = super().schedule(name)
        return msgspec.structs.replace(found, job=self._shown(found.job))

    def _shown(self, job: Job[Any]) -> Job[Any]:
        if self.hide_arguments:
            return msgspec.structs.replace(
                job, body=without_arguments(job.body), search={}, result=job.result and _HIDDEN_JSON
            )
        return msgspec.structs.replace(job, body=redact(job.body))

    def _flow_shown(self, flow: FlowRow) -> FlowRow:
        if not self.hide_arguments:
            return flow
        return msgspec.structs.replace(flow, state=_HIDDEN_JSON)

    def _event_shown(self, row: Event) -> Event:
        return msgspec.structs.replace(
            row, body=row.body and without_arguments(row.body), result=row.result and _HIDDEN_JSON
        )


_HIDDEN_JSON = msgspec.json.encode(HIDDEN)
