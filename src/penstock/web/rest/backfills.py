"""Backfills over REST: which tasks have one, where each partition is, and running a range again."""

from __future__ import annotations

import msgspec

from penstock.job import State
from penstock.web.request import Asked

MOST_PARTITIONS = 10_000


class Backfilled(msgspec.Struct):
    """A task, and how many jobs of its partitions were seen."""

    task: str
    jobs: int


class Tasks(msgspec.Struct):
    """Tasks with a backfill."""

    tasks: list[Backfilled]


class PartitionJson(msgspec.Struct):
    """A partition, and the job that stands for it."""

    partition: str
    job: str
    state: State


class Partitions(msgspec.Struct):
    """The last partitions of a range, in their order; `more`: there are others."""

    task: str
    partitions: list[PartitionJson]
    more: bool


class Again(msgspec.Struct, forbid_unknown_fields=True):
    """A range of partitions of a task of the app, both ends included; those that are done, too."""

    task: str
    first: str
    last: str
    reason: str = ""


class BackfillAnswer(msgspec.Struct):
    """How many partitions the range has."""

    partitions: int


def every(asked: Asked) -> Tasks:
    found = asked.verbs.backfilled_tasks()
    return Tasks([Backfilled(task, jobs) for task, jobs in sorted(found.items())])


def one(asked: Asked) -> Partitions:
    task = asked.word("task")
    looked = asked.verbs.backfill(task).within(asked.word("first"), asked.word("last"))
    shown = looked.partitions[-MOST_PARTITIONS:]
    return Partitions(
        task,
        [PartitionJson(each.text, each.job.id, each.state) for each in shown],
        looked.more or len(shown) < len(looked.partitions),
    )


def again(asked: Asked) -> BackfillAnswer:
    given = asked.json(Again)
    made = asked.verbs.fill_again(asked.app, given.task, given.first, given.last, given.reason)
    return BackfillAnswer(made)
