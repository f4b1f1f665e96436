"""Backfills as they stand: which tasks have one, and where each partition of a task is.

The store keeps no list of backfills. Their jobs have derived ids, and those are found without
looking through the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import groupby
from typing import Any, NamedTuple

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.job import Job, State
from penstock.rules.rule import Rule, RuleKind
from penstock.task.backfill import KEY, TAG, Partition, rows_of, run_id

MOST_LOOKED_AT = 5000
_PAGE = 1000
_MOST_RUNS = 1000  # of one partition


class Filled(NamedTuple):
    """A partition: the job that stands for it, and how many runs there were."""

    partition: Partition | str
    text: str
    job: Job[Any]
    runs: int

    @property
    def state(self) -> State:
        return self.job.state


class Looked(NamedTuple):
    """The partitions of a task, in order; `more`: there are further ones, not looked at."""

    partitions: list[Filled]
    more: bool = False

    def within(self, first: str, last: str) -> Looked:
        """Those from one partition to another, both included; an empty text is no bound."""
        low, high = (None if not each else partition_of(each) for each in (first, last))
        kept = [
            each
            for each in self.partitions
            if (low is None or _key(each.partition) >= _key(low))
            and (high is None or _key(each.partition) <= _key(high))
        ]
        return Looked(kept, self.more)

    def rows(self) -> Iterator[tuple[str, list[Filled]]]:
        """A row per month for days, per day for hours; else so many to a row."""
        for _, alike in groupby(self.partitions, lambda each: _key(each.partition)[0]):
            known: dict[Any, Filled] = {each.partition: each for each in alike}
            for name, row in rows_of(list(known)):
                yield name, [known[partition] for partition in row]

    def counts(self) -> dict[State, int]:
        counted = Counter(each.state for each in self.partitions)
        return {state: counted[state] for state in State if counted[state]}


def backfilled_tasks(broker: Broker, rules: Iterable[Rule]) -> dict[str, int]:
    """Tasks with a backfill, each with the partitions' jobs that were seen; bounded.

    A backfill bounds what runs of it by a limit of its own, which names the task as long as it
    stands, also when there are more jobs than are looked at.
    """
    tasks = {
        rule.task: 0
        for rule in rules
        if rule.kind is RuleKind.LIMIT and rule.author == KEY and rule.task is not None
    }
    for job in _looked_at(broker, Filter(derived=True)):
        if _is_filled(job):
            tasks[job.task] = tasks.get(job.task, 0) + 1
    return tasks


def look_at_backfill(broker: Broker, task: str) -> Looked:
    """Where each partition of this task is."""
    found: dict[str, list[Job[Any]]] = {}
    seen = 0
    for job in _looked_at(broker, Filter(task=(task,), derived=True)):
        seen += 1
        if _is_filled(job):
            found.setdefault(job.tags[TAG], []).append(job)
    filled = [
        Filled(partition_of(text), text, _standing(task, text, jobs), len(jobs))
        for text, jobs in found.items()
    ]
    filled.sort(key=lambda each: _key(each.partition))
    return Looked(filled, seen >= MOST_LOOKED_AT)


def _standing(task: str, partition: str, jobs: list[Job[Any]]) -> Job[Any]:
    """The job that stands for a partition: that of its last run."""
    left = {job.id: job for job in jobs}
    last, run = jobs[0], 0
    while left and run < _MOST_RUNS:
        last = left.pop(run_id(task, partition, run, last.app), last)
        run += 1
    return last


def partition_of(text: str) -> Partition | str:
    """A partition as its tag has it; what is none is a text."""
    kinds: tuple[Any, ...] = (int, date.fromisoformat, datetime.fromisoformat)
    for kind in kinds:
        try:
            partition = kind(text)
        except ValueError:
            continue
        # A moment without a zone could not be compared with others, and no backfill writes one.
        naive = isinstance(partition, datetime) and partition.tzinfo is None
        return text if naive else partition
    return text


def _looked_at(broker: Broker, wanted: Filter) -> Iterator[Job[Any]]:
    after, left = None, MOST_LOOKED_AT
    while left > 0:
        page = broker.find(wanted, after, min(left, _PAGE))
        yield from page.jobs
        left -= len(page.jobs)
        after = page.after
        if after is None:
            return


def _is_filled(job: Job[Any]) -> bool:
    return job.key == KEY and TAG in job.tags


def _key(partition: Partition | str) -> tuple[int, Any]:
    """An order over partitions of any kind: those of one kind stay together."""
    if isinstance(partition, int):
        return 0, partition
    if isinstance(partition, datetime):
        return 1, partition
    return (2, partition) if isinstance(partition, date) else (3, partition)
