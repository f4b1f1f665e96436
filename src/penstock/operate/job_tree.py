"""A job and the jobs that it enqueued, and those that these enqueued, as a tree with their events.

    job              of a detached task, or of its tree: what it enqueues has its id in a tag
      child          found by that tag
        flow         its other members stand below the job whose id the flow has; a map is one line

The tag is written with the child, so that no kill loses it. Jobs of parcels have none: those of
`enqueue_many` are not in the tree, and those of a map are only as a part of their flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.views import Event
from penstock.flows.flow import NodeRow
from penstock.job import PARENT, Job, State

MOST_BRANCHES = 1000
_PAGE = 1000


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the tree, or a map as a whole."""

    id: str
    parent: str | None = None
    level: int = 0
    task: str | None = None
    state: State | None = None  # None: of a map, or of a job that is not kept
    jobs: int = 1
    jobs_left: int = 0  # of a map: those that have not ended
    events: tuple[Event, ...] = ()


class Family(msgspec.Struct, frozen=True):
    """The branches from the root down, each before those below it."""

    branches: tuple[Branch, ...]
    more: bool = False  # there were too many


def family(
    broker: Broker,
    job_id: str,
    *,
    after: Position | None = BEGINNING,
    limit: int = 1000,
    most: int = MOST_BRANCHES,
) -> Family:
    """The tree below a job, or below a flow; of each the events after a position, up to a limit.

    `after=None`: the last ones of each.
    """
    branches: list[Branch] = []
    seen = {job_id}
    stack: list[Branch] = [_of_job(broker, job_id, Branch(id=job_id))]
    while stack:
        if len(branches) == most:
            return Family(tuple(branches), more=True)
        branch = stack.pop()
        events = tuple(broker.history(after=after, limit=limit, job=branch.id))
        task = branch.task or next((event.task for event in events if event.task), None)
        branches.append(msgspec.structs.replace(branch, task=task, events=events))
        below: list[Branch] = []
        for child in _below(broker, branch):
            if child.id not in seen and len(below) <= most:
                seen.add(child.id)
                below.append(child)
        stack += sorted(below, key=lambda child: child.id, reverse=True)
    return Family(tuple(branches))


def _below(broker: Broker, branch: Branch) -> Iterator[Branch]:
    place = Branch(id="", parent=branch.id, level=branch.level + 1)
    wanted = Filter(tags={PARENT: (branch.id,)})
    page = broker.find(wanted, limit=_PAGE)
    while True:
        for job in page.jobs:
            yield _known(place, job)
        if page.after is None:
            break
        page = broker.find(wanted, page.after, _PAGE)
    flow = broker.flow(branch.id)
    for node in () if flow is None else flow.nodes:
        # A single job's node has the id of the job, which may run, and enqueue, as any other.
        if node.jobs == 1 and (job := broker.get(node.id)) is not None:
            yield _known(place, job)
        else:
            yield _of_node(place, node)


def _of_job(broker: Broker, job_id: str, place: Branch) -> Branch:
    job = broker.get(job_id)
    return place if job is None else _known(place, job)


def _known(place: Branch, job: Job[Any]) -> Branch:
    return msgspec.structs.replace(place, id=job.id, task=job.task, state=job.state)


def _of_node(place: Branch, node: NodeRow) -> Branch:
    return msgspec.structs.replace(
        place, id=node.id, task=node.task, jobs=node.jobs, jobs_left=node.jobs_left
    )
