"""How far a flow is: its nodes as they stand, and what of them runs, failed or is waited for.

Counts come from the flow's own row, so that a map of a million is as quick as one job. Only what
runs or failed is looked up job by job, and of that a bounded number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.views import Page
from penstock.flows.flow import WAIT_TASK, FlowRow, NodeRow, levels_of, member_of
from penstock.flows.signals import TAG
from penstock.job import Job, State
from penstock.operate.to_json import decoded, iso

MOST_LOOKED_UP = 1000
MOST_READ = 5  # pages looked through for the jobs of one node, and jobs for when it began
MOST_TIMED = 100  # nodes, and of a map so many of its jobs

Jobs = dict[str, list[Job[Any]]]


class RunningJson(TypedDict):
    """A job that runs."""

    id: str
    claimed_at: str | None
    worker: str | None


class FailedJson(TypedDict):
    """A job that failed."""

    id: str
    reason: str | None
    error: str | None


class NodeJson(TypedDict):
    """A node of a flow; `level` is how many needs lie before it."""

    id: str
    task: str
    level: int
    state: str
    jobs: int
    jobs_left: int
    bad: int
    needs: tuple[str, ...]
    needs_left: int
    on_failure: str
    signal: str | None
    running: list[RunningJson]
    failed: list[FailedJson]


class FlowJson(TypedDict):
    """A flow."""

    id: str
    name: str
    find: Mapping[str, Any]
    state: Any
    created_at: str | None
    ended_at: str | None
    nodes: list[NodeJson]


class JobsByNode(NamedTuple):
    """Jobs of a flow by their node; of those that run, the ones that began first in front."""

    running: Jobs
    failed: Jobs
    awaited: dict[str, str]  # the signals that are waited for

    def state_of(self, node: NodeRow) -> str:
        """One word for all the jobs of a node: the state they are in, or that matters most."""
        if node.jobs_left:
            if node.needs_left or node.task == WAIT_TASK:
                return "waiting"
            return "running" if node.id in self.running else "ready"
        if not node.bad:
            return "succeeded"
        return "failed" if node.id in self.failed else "cancelled"


def flow_with(broker: Broker, id: str) -> FlowRow | None:
    """The flow of this id, or the one that has this job; None if there is none."""
    flow = broker.flow(id)
    if flow is None and (job := broker.get(id)) is not None:
        member = member_of(job.body)
        flow = None if member is None else broker.flow(member.id)
    return flow


def look_at(broker: Broker, flow: FlowRow) -> JobsByNode:
    """What runs, what failed, and which signals are waited for."""
    return JobsByNode(*_by_node(broker, flow), _awaited(broker, flow))


def _by_node(broker: Broker, flow: FlowRow) -> tuple[Jobs, Jobs]:
    """Jobs that run, those that began first in front, and jobs that failed; by their node."""
    going = [node.task for node in flow.nodes if node.jobs_left and not node.needs_left]
    bad = [node.task for node in flow.nodes if node.bad]
    running = _looked_up(broker, flow, going, State.RUNNING)
    for jobs in running.values():
        jobs.sort(key=lambda job: job.claimed_at or 0.0)
    return running, _looked_up(broker, flow, bad, State.FAILED)


def _awaited(broker: Broker, flow: FlowRow) -> dict[str, str]:
    """The signals that are waited for, by node."""
    tasks = [node.task for node in flow.nodes if node.task == WAIT_TASK and node.jobs_left]
    waiting = _looked_up(broker, flow, tasks, State.WAITING)
    return {node: jobs[0].tags.get(TAG, "") for node, jobs in waiting.items()}


def _looked_up(broker: Broker, flow: FlowRow, tasks: Sequence[str], state: State) -> Jobs:
    jobs_found: Jobs = {}
    if tasks:
        query = Filter(task=tuple(dict.fromkeys(tasks)), state=(state,), since=flow.created_at - 60)
        for job in broker.find(query, limit=MOST_LOOKED_UP).jobs:
            member = member_of(job.body)
            if member is not None and member.id == flow.id:
                jobs_found.setdefault(member.node, []).append(job)
    return jobs_found


def jobs_of(
    broker: Broker, flow: FlowRow, node: str, state: State | None = None, after: str | None = None
) -> Page:
    """Jobs of a node, newest first.

    They are found among the jobs of its task that were enqueued while the flow went on: a page may
    be short, or empty, with `after` set.
    """
    task = next((each.task for each in flow.nodes if each.id == node), None)
    if task is None:
        return Page([])
    query = _enqueued_during(flow, task, () if state is None else (state,))
    jobs_found: list[Job[Any]] = []
    examined = 0
    for _ in range(MOST_READ):
        page = broker.find(query, after, 100)
        jobs_found += [job for job in page.jobs if _is_member(job, flow, node)]
        examined += len(page.jobs)
        after = page.after
        if after is None or jobs_found:
            break
    return Page(jobs_found, after, examined)


class Took(NamedTuple):
    """From the first start to the last end, as far as jobs were looked at."""

    seconds: float
    going: bool  # a job of it runs: it goes on


def times_of(broker: Broker, flow: FlowRow, nodes: Sequence[NodeRow]) -> dict[str, Took]:
    """How long nodes took so far, of those whose jobs have begun; of a map by its newest jobs."""
    now, times = broker.clock.now(), dict[str, Took]()
    for node in nodes[:MOST_TIMED]:
        if node.needs_left or node.task == WAIT_TASK:
            continue
        if (single := broker.get(node.id)) is not None:
            jobs = [single]
        else:
            begun = (State.RUNNING, State.SUCCEEDED, State.FAILED)
            page = broker.find(_enqueued_during(flow, node.task, begun), limit=MOST_TIMED)
            jobs = [job for job in page.jobs if _is_member(job, flow, node.id)]
        starts = _starts(broker, jobs)
        ends = [job.ended_at for job in jobs if job.ended_at is not None]
        going = any(job.state is State.RUNNING for job in jobs)
        if starts and (ends or going):
            last = now if going else max(ends)
            times[node.id] = Took(max(0.0, last - min(starts)), going)
    return times


def _starts(broker: Broker, jobs: Sequence[Job[Any]]) -> list[float]:
    """When these jobs began, as far as that is known; of some that ended the history has to say."""
    known = [job.claimed_at for job in jobs if job.claimed_at is not None]
    others = [job for job in jobs if job.claimed_at is None and job.ended_at is not None]
    rows = [row for job in others[:MOST_READ] for row in broker.history(None, 1, job.id)]
    return known + [row.started_at for row in rows if row.started_at is not None]


def _enqueued_during(flow: FlowRow, task: str, states: tuple[State, ...]) -> Filter:
    until = None if flow.ended_at is None else flow.ended_at + 1
    return Filter(task=(task,), state=states, since=flow.created_at - 60, until=until)


def _is_member(job: Job[Any], flow: FlowRow, node: str) -> bool:
    member = member_of(job.body)
    return member is not None and (member.id, member.node) == (flow.id, node)


def flow_json(flow: FlowRow, look: JobsByNode) -> FlowJson:
    """A flow for programs."""
    levels = levels_of(flow.nodes)
    return {
        "id": flow.id,
        "name": flow.name,
        "find": flow.find,
        "state": decoded(flow.state),
        "created_at": iso(flow.created_at or None),
        "ended_at": iso(flow.ended_at),
        "nodes": [
            {
                "id": node.id,
                "task": node.task,
                "level": levels[node.id],
                "state": look.state_of(node),
                "jobs": node.jobs,
                "jobs_left": node.jobs_left,
                "bad": node.bad,
                "needs": node.needs,
                "needs_left": node.needs_left,
                "on_failure": node.on_failure,
                "signal": look.awaited.get(node.id),
                "running": [
                    {"id": job.id, "claimed_at": iso(job.claimed_at), "worker": job.worker}
                    for job in look.running.get(node.id, [])
                ],
                "failed": [
                    {"id": job.id, "reason": job.reason, "error": job.error}
                    for job in look.failed.get(node.id, [])
                ],
            }
            for node in flow.nodes
        ],
    }
