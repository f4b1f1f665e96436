"""The pipeline of an app: what its datasets lack, and the jobs that make it. No session here.

A job is named after the version that it is to make, so whoever asks again, also at the same
moment, finds the jobs that are there. Only what can be made now is enqueued: a job that has made a
partition enqueues those that were asked for and waited for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.broker.filter import Filter
from penstock.enqueue.ids import derived_id
from penstock.errors import Refused
from penstock.job import ENDED, Job, State
from penstock.operate.find_pages import find_jobs
from penstock.rules.rule import Rule, RuleKind
from penstock.spark.datasets.table import DatasetTable
from penstock.task.dataset import AskedPartitions, Dataset, graph_of
from penstock.task.dataset_graph import Graph, Key, Partition
from penstock.task.dataset_plan import (
    Inputs,
    PartitionPlan,
    PartitionState,
    PartitionVersion,
    PipelineRun,
    make_plan,
    run_name,
)
from penstock.task.interval import Interval

if TYPE_CHECKING:
    from penstock.app.app import App

TAG = "partition"
AUTHOR = "pipeline"
MAX_RUNNING = 4
_AT_ONCE = 1000
_APART = 0.001
_READERS = 8  # tables read at a time
_TRIES = 3  # names of runs that are looked at for a job
_Wanted = tuple[PartitionPlan, int, tuple[str, ...]]  # how often made before; what else names it
_NOT_DONE = tuple(state for state in State if state is not State.SUCCEEDED)


class Standing(NamedTuple):
    """Where a partition stands, with the job that is to make it, if there is one."""

    plan: PartitionPlan
    job: Job[Any] | None = None

    @property
    def state(self) -> str:
        """Of the partition, or of its job where there is one: running, enqueued or failed."""
        if self.job is None:
            return self.plan.state
        if self.job.state is State.RUNNING:
            return "running"
        return "failed" if self.job.state in ENDED else "enqueued"


class Pipeline:
    """The datasets of an app, with their tables and jobs."""

    def __init__(self, app: App) -> None:
        self.app = app
        if not app.datasets:
            raise Refused("this app has no datasets: write @app.dataset over a function")
        self.graph: Graph = graph_of(app.datasets.values())

    def dataset(self, name: str) -> Dataset[...]:
        """The dataset of this name; the name of its function will do where only one has it."""
        found = self.app.datasets.get(name)
        short = [
            each for known, each in self.app.datasets.items() if known.rpartition(":")[2] == name
        ]
        if found is None and len(short) == 1:
            found = short[0]
        if found is None:
            known = ", ".join(self.app.datasets)
            raise Refused(f"there is no dataset {name}; there are {known}")
        return found

    @cached_property
    def now(self) -> float:
        return self.app.clock.now()

    def versions(self, names: Collection[str]) -> dict[str, dict[str, PartitionVersion]]:
        """What the tables of these datasets hold now."""
        tables = [DatasetTable(self.app.datasets[name].place) for name in names]
        with ThreadPoolExecutor(_READERS) as pool:
            return dict(zip(names, pool.map(DatasetTable.versions, tables), strict=True))

    def source_version(self, name: str, number: int, partition: Partition) -> str:
        """What a source of a dataset says that there is."""
        source = self.app.datasets[name].sources[number]
        return "" if source.version is None else source.version(partition)

    def asked_partitions(self, asked: AskedPartitions) -> list[tuple[str, Partition]]:
        """The partitions that somebody asked for."""
        return [
            (name, partition)
            for name in self.graph.order
            if name in asked.wanted
            for partition in self.graph.range(
                name, _moment(asked.since), self.end(asked), explicit=asked.since is not None
            )
        ]

    def end(self, asked: AskedPartitions) -> datetime:
        """Intervals that end later are not over, or not asked for."""
        return datetime.fromtimestamp(min(self.now, asked.until or math.inf), UTC)

    def plan(self, targets: Sequence[tuple[str, Partition]]) -> dict[Key, PartitionPlan]:
        """Where these partitions stand, and all that they need; in order of need."""
        names = self.graph.upstream({name for name, _ in targets})
        now = datetime.fromtimestamp(self.now, UTC)
        return make_plan(self.graph, targets, self.versions(names), self.source_version, now)

    def inputs(self, versions: Mapping[str, Mapping[str, PartitionVersion]]) -> Inputs:
        """What partitions are made of, by these versions."""
        return Inputs(self.graph, versions, self.source_version)

    def fill(
        self,
        asked: AskedPartitions,
        *,
        again: bool = False,
        max_running: int | None = None,
        author_and_reason: tuple[str, str] = (AUTHOR, ""),
        dry_run: bool = False,
    ) -> PipelineRun:
        """Enqueue what is lacking of these partitions and can be made now.

        `again`: also those that are current. A dry run only counts.
        """
        targets = self.asked_partitions(asked)
        plans = self.plan(targets)
        forced = {(name, str(each)) for name, each in targets} if again else set[Any]()
        due = [
            plan
            for key, plan in plans.items()
            if plan.due or (key in forced and plan.over and not plan.waits_for)
        ]
        waiting = sum(1 for plan in plans.values() if is_to_be_made(plan) and not plan.due)
        if dry_run:
            return msgspec.structs.replace(self.foresee(due), waiting=waiting)
        if due:
            self.bound({plan.dataset for plan in due}, max_running)
        filled = self.enqueue(due, asked, author_and_reason=author_and_reason)
        return msgspec.structs.replace(filled, waiting=waiting)

    # Jobs

    def standings(self, plans: Mapping[Key, PartitionPlan]) -> list[Standing]:
        """The plans with their jobs."""
        names = {plan.dataset for plan in plans.values() if plan.due}
        jobs: dict[str, Job[Any]] = {}
        if names:
            filter = Filter(task=tuple(names), state=_NOT_DONE, derived=True)
            jobs = {job.id: job for job in find_jobs(self.app.broker.find, filter)}
        return [Standing(plan, self._job_of(plan, jobs)) for plan in plans.values()]

    def _job_of(self, plan: PartitionPlan, jobs: Mapping[str, Job[Any]]) -> Job[Any] | None:
        if not plan.due or plan.base is None or not jobs:
            return None
        first = next_again(plan)
        ids = (self.job_id(plan.key, run_name(plan.base, first + n)) for n in range(_TRIES))
        return next((jobs[id] for id in ids if id in jobs), None)

    def job_id(self, key: Key, run: str, *more: str) -> str:
        """The id of the job that makes this version."""
        own = ("app", self.app.name) if self.app.name else ()
        return derived_id("dataset", *key, run, *own, *more)

    def enqueue(
        self,
        plans: Iterable[PartitionPlan],
        asked: AskedPartitions,
        *,
        author_and_reason: tuple[str, str] | None = None,
    ) -> PipelineRun:
        """Have a job for each of these partitions, which can be made now.

        With an author the jobs that failed are tried again.
        """
        counts: Counter[str] = Counter()
        retried = open_ = 0
        ordered = sorted(plans, key=lambda plan: plan.partition)
        # Ids say nothing of their order: the first partition has been due for longest.
        due_at = self.app.clock.now() - len(ordered) * _APART
        order = {plan.key: due_at + n * _APART for n, plan in enumerate(ordered)}
        remaining = iter(ordered)
        while part := list(islice(remaining, _AT_ONCE)):
            failed: list[str] = []
            undecided: list[_Wanted] = [(plan, next_again(plan), ()) for plan in part]
            while undecided:
                jobs = [
                    msgspec.structs.replace(
                        self._job(plan, again, asked, more), run_at=order[plan.key]
                    )
                    for plan, again, more in undecided
                ]
                known = self.app.store(jobs).known
                following: list[_Wanted] = []
                for (plan, again, more), job in zip(undecided, jobs, strict=True):
                    if job.id not in known:
                        counts[plan.dataset] += 1
                        continue
                    stored = self.app.broker.get(job.id)
                    if stored is None or stored.state is State.SUCCEEDED:
                        following.append((plan, again + 1, ()))  # its version is gone
                    elif stored.state in ENDED:
                        failed.append(job.id)
                    elif more or _covers(stored, job):
                        open_ += 1
                    else:  # it will not go on with what is asked for now: one more follows it
                        following.append((plan, again, (repr(asked),)))
                undecided = following
            if failed and author_and_reason is not None:
                self.app.broker.act("retry", failed, *author_and_reason)
                retried += len(failed)
        return PipelineRun(enqueued=dict(counts), retried=retried, open=open_)

    def foresee(self, plans: Sequence[PartitionPlan]) -> PipelineRun:
        """What `enqueue` would do, as far as it can be known."""
        states = Counter[tuple[str, str]]()
        for each in self.standings({plan.key: plan for plan in plans}):
            states[each.plan.dataset, "new" if each.job is None else each.state] += 1
        failed = sum(number for (_, state), number in states.items() if state == "failed")
        new = {name: number for (name, state), number in states.items() if state == "new"}
        open_ = states.total() - failed - sum(new.values())
        return PipelineRun(enqueued=new, retried=failed, open=open_)

    def late(self, standings: Iterable[Standing]) -> Iterator[Key]:
        """Partitions that are not current, and should be by the `freshness` of their dataset."""
        for each in standings:
            plan = each.plan
            freshness = self.app.datasets[plan.dataset].freshness
            if freshness is None or not is_to_be_made(plan):
                continue
            partition = self.graph.partition(plan.dataset, plan.partition)
            if isinstance(partition, Interval) and (
                partition.end.timestamp() + freshness <= self.now
            ):
                yield plan.key

    def _job(
        self, plan: PartitionPlan, again: int, asked: AskedPartitions, more: tuple[str, ...]
    ) -> Job[Any]:
        if plan.base is None:
            raise Refused(f"{plan.dataset} {plan.partition} lacks an input, and cannot be made")
        task = self.app.datasets[plan.dataset].task
        options = task.options(tags={TAG: plan.partition})
        job = options.job(plan.partition, again, list(asked.wanted), asked.since, asked.until)
        return msgspec.structs.replace(
            job, id=self.job_id(plan.key, run_name(plan.base, again), *more)
        )

    # What follows

    def follow(self, name: str, partition: Partition, asked: AskedPartitions) -> PipelineRun:
        """Enqueue what was asked for, needs this partition, and can be made now."""
        among = self.graph.upstream(asked.wanted)
        end = self.end(asked)
        targets = [
            key
            for key in self.graph.children(name, partition, among, end)
            if self._is_wanted(key, asked, among, end)
        ]
        if not targets:
            return PipelineRun(enqueued={})
        plans = self.plan(targets)
        wanted = {(name, str(each)) for name, each in targets}
        return self.enqueue(
            [plan for key, plan in plans.items() if key in wanted and plan.due], asked
        )

    def _is_wanted(
        self,
        key: tuple[str, Partition],
        asked: AskedPartitions,
        among: Sequence[str],
        end: datetime,
    ) -> bool:
        """Whether this partition was asked for, or one that needs it."""
        seen: set[Key] = set()
        remaining = [key]
        while remaining:
            name, partition = remaining.pop()
            if (name, str(partition)) in seen:
                continue
            seen.add((name, str(partition)))
            if isinstance(partition, Interval) and partition.end > end:
                continue
            if name in asked.wanted and self._in_range(name, partition, asked):
                return True
            remaining += self.graph.children(name, partition, among, end)
        return False

    def _in_range(self, name: str, partition: Partition, asked: AskedPartitions) -> bool:
        if not isinstance(partition, Interval):
            return True
        since = _moment(asked.since) or self.graph.start_of(name)
        return since is None or partition.start >= since

    # The cap

    def bound(self, names: Iterable[str], most: int | None) -> None:
        """Let at most so many jobs of these datasets run at a time, by queue.

        None: as it is, or if nobody said so far, `MAX_RUNNING`. Refused where somebody else did.
        """
        if most is not None and most < 1:
            raise Refused(f"max_running={most}: 1 or more")
        rules = {rule.identity: rule for rule in self.app.broker.records(Rule)}
        for queue in {self.app.datasets[name].task.queue for name in names}:
            running = MAX_RUNNING if most is None else most
            rule = Rule(RuleKind.LIMIT, queue, None, AUTHOR, "pipeline run", running=running)
            other = rules.get(rule.identity)
            if other is None or (most is not None and other.author == AUTHOR):
                self.app.broker.put(rule)
            elif most is not None:
                raise Refused(
                    f"{other.target} has a limit already ({other.bound}), which holds for this as"
                    " well: leave out max_running, or take it back first"
                )


def next_again(plan: PartitionPlan) -> int:
    """How often the version to come was made before, as far as the table says."""
    version = plan.version
    if version is None or version.base != plan.base:
        return 0
    return int(version.run.rpartition(".")[2]) + 1


def is_to_be_made(plan: PartitionPlan) -> bool:
    return plan.state is not PartitionState.CURRENT


def _covers(stored: Job[Any], job: Job[Any]) -> bool:
    """Whether a stored job goes on with all that this one would go on with."""
    there, here = (msgspec.json.decode(each.body)["args"] for each in (stored, job))
    return (
        set(there.get("wanted") or ()) >= set(here.get("wanted") or ())
        and (there.get("since") or -math.inf) <= (here.get("since") or -math.inf)
        and (there.get("until") or math.inf) >= (here.get("until") or math.inf)
    )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
