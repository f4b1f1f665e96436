"""Backfills over REST: which tasks have one, where each partition is, and running a range again."""

from __future__ import annotations

import msgspec

from penstock.job import State
from penstock.web.request import WebRequest

MOST_PARTITIONS = 10_000


class Backfilled(msgspec.Struct):
    """A task, and the number of its partition jobs among those that were read."""

    task: str
    jobs: int


class Tasks(msgspec.Struct):
    """Tasks with a backfill."""

    tasks: list[Backfilled]


class PartitionJson(msgspec.Struct):
    """A partition, and the job of its last run."""

    partition: str
    job: str
    state: State


class Partitions(msgspec.Struct):
    """The last partitions of a range, in order; `more`: there are others."""

    task: str
    partitions: list[PartitionJson]
    more: bool


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A range of partitions to run again, both ends included, also succeeded ones."""

    task: str
    first: str
    last: str
    reason: str = ""


class BackfillAnswer(msgspec.Struct):
    """How many partitions the range has."""

    partitions: int


def list_all(request: WebRequest) -> Tasks:
    found = request.store.backfilled_tasks()
    return Tasks([Backfilled(task, jobs) for task, jobs in sorted(found.items())])


def one(request: WebRequest) -> Partitions:
    task = request.word("task")
    status = request.store.backfill(task).within(request.word("first"), request.word("last"))
    shown = status.partitions[-MOST_PARTITIONS:]
    return Partitions(
        task,
        [PartitionJson(each.text, each.job.id, each.state) for each in shown],
        status.more or len(shown) < len(status.partitions),
    )


def again(request: WebRequest) -> BackfillAnswer:
    given = request.json(BackfillRequest)
    made = request.store.rerun_backfill(
        request.app, given.task, given.first, given.last, given.reason
    )
    return BackfillAnswer(made)
