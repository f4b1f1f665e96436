"""The status of backfills: which tasks have one, and the state of each partition.

The store keeps no list of backfills. Their jobs have derived ids, and `find` reads only those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import groupby, islice
from typing import Any, NamedTuple

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.job import Job, State
from penstock.operate.find_pages import find_jobs
from penstock.rules.rule import Rule, RuleKind
from penstock.task.backfill import KEY, TAG, Partition, rows_of, run_id

MOST_LOOKED_AT = 5000
_MOST_RUNS = 1000  # of one partition


class PartitionStatus(NamedTuple):
    """A partition, the job of its last run, and the number of runs."""

    partition: Partition | str
    text: str
    job: Job[Any]
    runs: int

    @property
    def state(self) -> State:
        return self.job.state


class BackfillStatus(NamedTuple):
    """The partitions of a task, in order; `more`: there are jobs that were not read."""

    partitions: list[PartitionStatus]
    more: bool = False

    def within(self, first: str, last: str) -> BackfillStatus:
        """Those from one partition to another, both included; an empty text is no bound."""
        low, high = (_sort_key(parse_partition(text)) if text else None for text in (first, last))
        keys = [_sort_key(status.partition) for status in self.partitions]
        kept = [
            status
            for key, status in zip(keys, self.partitions, strict=True)
            if (low is None or key >= low) and (high is None or key <= high)
        ]
        return BackfillStatus(kept, self.more)

    def rows(self) -> Iterator[tuple[str, list[PartitionStatus]]]:
        """A row per month for days, per day for hours, else of a fixed length; with its label."""
        for _, group in groupby(self.partitions, lambda status: _sort_key(status.partition)[0]):
            known: dict[Any, PartitionStatus] = {status.partition: status for status in group}
            for name, row in rows_of(list(known)):
                yield name, [known[partition] for partition in row]

    def counts(self) -> dict[State, int]:
        counted = Counter(status.state for status in self.partitions)
        return {state: counted[state] for state in State if counted[state]}


def backfilled_tasks(broker: Broker, rules: Iterable[Rule]) -> dict[str, int]:
    """Tasks with a backfill, each with the number of its jobs among those that were read.

    A running backfill has a limit of its own: that names its task even if the number of jobs is
    beyond the bound.
    """
    tasks = {
        rule.task: 0
        for rule in rules
        if rule.kind is RuleKind.LIMIT and rule.author == KEY and rule.task is not None
    }
    for job in _derived_jobs(broker, Filter(derived=True)):
        if _is_partition_job(job):
            tasks[job.task] = tasks.get(job.task, 0) + 1
    return tasks


def read_backfill(broker: Broker, task: str) -> BackfillStatus:
    """The status of each partition of this task."""
    found: dict[str, list[Job[Any]]] = {}
    seen = 0
    for job in _derived_jobs(broker, Filter(task=(task,), derived=True)):
        seen += 1
        if _is_partition_job(job):
            found.setdefault(job.tags[TAG], []).append(job)
    partitions = [
        PartitionStatus(parse_partition(text), text, _last_run(task, text, jobs), len(jobs))
        for text, jobs in found.items()
    ]
    partitions.sort(key=lambda status: _sort_key(status.partition))
    return BackfillStatus(partitions, seen >= MOST_LOOKED_AT)


def _last_run(task: str, partition: str, jobs: list[Job[Any]]) -> Job[Any]:
    """The job of the last run: the ids of the runs are derived from their numbers."""
    left = {job.id: job for job in jobs}
    last, run = jobs[0], 0
    while left and run < _MOST_RUNS:
        last = left.pop(run_id(task, partition, run, last.app), last)
        run += 1
    return last


def parse_partition(text: str) -> Partition | str:
    """A number, a day or a time; anything else stays text."""
    kinds: tuple[Any, ...] = (int, date.fromisoformat, datetime.fromisoformat)
    for kind in kinds:
        try:
            partition = kind(text)
        except ValueError:
            continue
        # A time without a zone cannot be compared with others, and no backfill writes one.
        naive = isinstance(partition, datetime) and partition.tzinfo is None
        return text if naive else partition
    return text


def _derived_jobs(broker: Broker, filter: Filter) -> Iterator[Job[Any]]:
    yield from islice(find_jobs(broker.find, filter), MOST_LOOKED_AT)


def _is_partition_job(job: Job[Any]) -> bool:
    return job.key == KEY and TAG in job.tags


def _sort_key(partition: Partition | str) -> tuple[int, Any]:
    """Sorts partitions of any type; those of one type stay together."""
    if isinstance(partition, int):
        return 0, partition
    if isinstance(partition, datetime):
        return 1, partition
    return (2, partition) if isinstance(partition, date) else (3, partition)
