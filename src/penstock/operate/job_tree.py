"""The tree of jobs below a job: what it enqueued, what those enqueued, with their events.

    job              of a detached task, or of its tree: what it enqueues has its id in a tag
      child          found by that tag
        flow         its other members are below the job whose id is the flow's; a map is one node

The tag is written with the child, so a killed worker loses no link. Jobs of parcels have no tags:
jobs of `enqueue_many` are not in the tree, and those of a map only as one node of their flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.views import Event
from penstock.job import PARENT, Job, State
from penstock.operate.find_pages import find_jobs

MOST_NODES = 1000


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the tree, or a map as a whole."""

    id: str
    parent: str | None = None
    level: int = 0
    task: str | None = None
    state: State | None = None  # None for a map, or a job that is not kept
    jobs: int = 1
    jobs_left: int = 0  # jobs of a map that have not ended
    events: tuple[Event, ...] = ()


class JobTree(msgspec.Struct, frozen=True):
    """The nodes from the root down, each before its children."""

    nodes: tuple[TreeNode, ...]
    more: bool = False  # there are more than were read


def read_job_tree(
    broker: Broker,
    job_id: str,
    *,
    after: Position | None = BEGINNING,
    limit: int = 1000,
    most: int = MOST_NODES,
) -> JobTree:
    """The tree below a job or a flow, with the events of each node after a position, up to a limit.

    `after=None`: the last events of each.
    """
    nodes: list[TreeNode] = []
    seen = {job_id}
    root, job = TreeNode(id=job_id), broker.get(job_id)
    stack: list[TreeNode] = [root if job is None else _job_node(root, job)]
    while stack:
        if len(nodes) == most:
            return JobTree(tuple(nodes), more=True)
        node = stack.pop()
        events = tuple(broker.history(after=after, limit=limit, job=node.id))
        task = node.task or next((event.task for event in events if event.task), None)
        nodes.append(msgspec.structs.replace(node, task=task, events=events))
        children: list[TreeNode] = []
        for child in _children(broker, node):
            if child.id not in seen and len(children) <= most:
                seen.add(child.id)
                children.append(child)
        stack += sorted(children, key=lambda child: child.id, reverse=True)
    return JobTree(tuple(nodes))


def _children(broker: Broker, parent: TreeNode) -> Iterator[TreeNode]:
    child = TreeNode(id="", parent=parent.id, level=parent.level + 1)
    for job in find_jobs(broker.find, Filter(tags={PARENT: (parent.id,)})):
        yield _job_node(child, job)
    flow = broker.flow(parent.id)
    for node in () if flow is None else flow.nodes:
        # The node of a single job has the job's id; that job may have children of its own.
        if node.jobs == 1 and (job := broker.get(node.id)) is not None:
            yield _job_node(child, job)
        else:
            yield msgspec.structs.replace(
                child, id=node.id, task=node.task, jobs=node.jobs, jobs_left=node.jobs_left
            )


def _job_node(node: TreeNode, job: Job[Any]) -> TreeNode:
    return msgspec.structs.replace(node, id=job.id, task=job.task, state=job.state)
