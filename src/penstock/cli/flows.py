"""Flow: how far a flow is, drawn from its first jobs to its last.

Counts come from the flow's own row, so that a map of a million is as quick as one job. Only what
runs or failed is looked up job by job, and of that a bounded number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AppTarget, Json, Profile, Url
from penstock.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    import rich.text

    from penstock.broker import Broker
    from penstock.flow import FlowRow, NodeRow
    from penstock.job import Job, State

MOST_LOOKED_UP = 1000


def flow(
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A flow, or any job of it.", show_default=False),
    ] = None,
    *,
    name: Annotated[
        str | None,
        typer.Option(help="The newest flow of this name, instead of an id.", show_default=False),
    ] = None,
    find: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPERTY=VALUE",
            help="With --name: one that has this property; may be given again.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Draw a flow: what has ended, what runs and since when, what waits.

    Example: penstock flow --name access --find user=62
    """
    from penstock.cli import show
    from penstock.cli.place import opened
    from penstock.ids import parse_id

    if (id is None) == (name is None) or (find and name is None):
        raise Refused("flow takes an id, or --name with any number of --find PROPERTY=VALUE")
    wanted = None if id is None else parse_id(id)
    properties = dict(_property(word) for word in find or [])
    with opened(url, profile, app) as broker:
        if wanted is None:
            found = next(iter(broker.flows(name, properties, limit=1).flows), None)
        else:
            found = flow_with(broker, wanted)
        if found is None:
            if json:
                asked = {"name": name, "find": properties} if wanted is None else {"id": wanted}
                show.put_json({**asked, "known": False})
            elif wanted is None:
                show.say(f"no flow {' '.join([name or '', *(find or [])])} is stored here.")
            else:
                show.say(
                    f"{wanted} is no flow that is stored here, and no job of one: it was never "
                    "enqueued, or it ended and was not kept."
                )
            raise typer.Exit(1)
        described = _json(found, *_looked_at(broker, found)) if json else {}
        lines = [] if json else drawn(broker, found)
    if json:
        show.put_json(described)
    for line in lines:
        show.console().print(line, soft_wrap=True)


def drawn(broker: Broker, flow: FlowRow) -> list[rich.text.Text]:
    """How far a flow is, for people: a summary, its state, and a line for each node."""
    import rich.text

    now = broker.clock.now()
    lines = [rich.text.Text(_summary(flow, now))]
    if flow.state != b"{}":
        lines.append(rich.text.Text(f"  state {flow.state.decode()}"))
    return lines + _lines(flow, *_looked_at(broker, flow), now)


def _looked_at(broker: Broker, flow: FlowRow) -> tuple[Jobs, Jobs, dict[str, str]]:
    """What runs, what failed, and which signals are waited for, each by node."""
    return *_by_node(broker, flow), _awaited(broker, flow)


def _property(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise Refused(f"--find {word}: write PROPERTY=VALUE, as --find user=62")
    return name, value


def flow_with(broker: Broker, wanted: str) -> FlowRow | None:
    """The flow of this id, or the one that has this job; None if there is none."""
    from penstock.flow import member_of

    found = broker.flow(wanted)
    if found is None and (job := broker.get(wanted)) is not None:
        place = member_of(job.body)
        found = None if place is None else broker.flow(place.id)
    return found


Jobs = dict[str, list["Job[Any]"]]


def _by_node(broker: Broker, flow: FlowRow) -> tuple[Jobs, Jobs]:
    """Jobs that run, those that began first in front, and jobs that failed; by their node."""
    from penstock.job import State

    going = [node.task for node in flow.nodes if node.jobs_left and not node.needs_left]
    bad = [node.task for node in flow.nodes if node.bad]
    running = _looked_up(broker, flow, going, State.RUNNING)
    for jobs in running.values():
        jobs.sort(key=lambda job: job.claimed_at or 0.0)
    return running, _looked_up(broker, flow, bad, State.FAILED)


def _awaited(broker: Broker, flow: FlowRow) -> dict[str, str]:
    """The signals that are waited for, by node."""
    from penstock.flow import WAIT_TASK
    from penstock.job import State
    from penstock.signals import TAG

    tasks = [node.task for node in flow.nodes if node.task == WAIT_TASK and node.jobs_left]
    waiting = _looked_up(broker, flow, tasks, State.WAITING)
    return {node: jobs[0].tags.get(TAG, "") for node, jobs in waiting.items()}


def _looked_up(broker: Broker, flow: FlowRow, tasks: Sequence[str], state: State) -> Jobs:
    from penstock.filter import Filter
    from penstock.flow import member_of

    found: Jobs = {}
    if tasks:
        wanted = Filter(
            task=tuple(dict.fromkeys(tasks)), state=(state,), since=flow.created_at - 60
        )
        for job in broker.find(wanted, limit=MOST_LOOKED_UP).jobs:
            place = member_of(job.body)
            if place is not None and place.id == flow.id:
                found.setdefault(place.node, []).append(job)
    return found


def _summary(flow: FlowRow, now: float) -> str:
    from penstock.filter import as_text
    from penstock.why import span

    left, jobs = sum(node.jobs_left for node in flow.nodes), sum(node.jobs for node in flow.nodes)
    find = [f"{name}={as_text(value)}" for name, value in flow.find.items()]
    name = " ".join(["", flow.name, *find]) if flow.name else ""
    if flow.ended_at is not None:
        bad = sum(node.bad for node in flow.nodes)
        how = f", {bad:,} of them without success" if bad else ""
        took = span(flow.ended_at - flow.created_at)
        return f"flow{name} {flow.id}: all of its {jobs:,} jobs ended{how}, after {took}"
    since = span(now - flow.created_at)
    return f"flow{name} {flow.id}: {jobs - left:,} of {jobs:,} jobs ended, since {since}"


def _lines(
    flow: FlowRow, running: Jobs, failed: Jobs, awaited: dict[str, str], now: float
) -> list[rich.text.Text]:
    import rich.text

    from penstock.cli import show
    from penstock.flow import levels_of
    from penstock.why import span

    levels = levels_of(flow.nodes)
    widest = max(2 * levels[node.id] + len(node.task) for node in flow.nodes)
    lines: list[rich.text.Text] = []
    for node in flow.nodes:
        state = _state(node, running, failed)
        line = rich.text.Text("  " * (1 + levels[node.id]))
        line.append(node.task.ljust(widest - 2 * levels[node.id] + 2))
        line.append(f"{state:<10}", show.COLOURS.get(state, ""))
        line.append(_counted(node))
        if node.needs_left and node.jobs_left:
            line.append(f", waits for {node.needs_left} of its {len(node.needs)} needs", "dim")
        if node.id in awaited:
            line.append(f", waits for the signal {awaited[node.id]!r}", "dim")
        if jobs := running.get(node.id):
            longest = jobs[0]
            for_ = span(now - (longest.claimed_at or now))
            line.append(f", {len(jobs):,} running, the longest for {for_} ({longest.id})", "yellow")
        if jobs := failed.get(node.id):
            said = (jobs[0].error or jobs[0].reason or "").strip().splitlines()
            line.append(f", {jobs[0].id}: {said[-1] if said else 'failed'}", "red")
        lines.append(line)
    return lines


def _state(node: NodeRow, running: Jobs, failed: Jobs) -> str:
    """One word for all the jobs of a node: the state that they are in, or that matters most."""
    from penstock.flow import WAIT_TASK

    if node.jobs_left:
        if node.needs_left or node.task == WAIT_TASK:
            return "waiting"
        return "running" if node.id in running else "ready"
    if not node.bad:
        return "succeeded"
    return "failed" if node.id in failed else "cancelled"


def _counted(node: NodeRow) -> str:
    ended = node.jobs - node.jobs_left
    bad = f", {node.bad:,} without success" if node.bad else ""
    goes_on = ", goes on without" if node.on_failure == "continue" and node.needs else ""
    return f"{ended:,} of {node.jobs:,} ended{bad}{goes_on}"


def _json(flow: FlowRow, running: Jobs, failed: Jobs, awaited: dict[str, str]) -> dict[str, Any]:
    from penstock import as_json
    from penstock.flow import levels_of

    levels = levels_of(flow.nodes)
    return {
        "id": flow.id,
        "name": flow.name,
        "find": flow.find,
        "state": as_json.decoded(flow.state),
        "created_at": as_json.iso(flow.created_at or None),
        "ended_at": as_json.iso(flow.ended_at),
        "nodes": [
            {
                "id": node.id,
                "task": node.task,
                "level": levels[node.id],
                "state": _state(node, running, failed),
                "jobs": node.jobs,
                "jobs_left": node.jobs_left,
                "bad": node.bad,
                "needs": node.needs,
                "needs_left": node.needs_left,
                "on_failure": node.on_failure,
                "signal": awaited.get(node.id),
                "running": [
                    {"id": job.id, "claimed_at": as_json.iso(job.claimed_at), "worker": job.worker}
                    for job in running.get(node.id, [])
                ],
                "failed": [
                    {"id": job.id, "reason": job.reason, "error": job.error}
                    for job in failed.get(node.id, [])
                ],
            }
            for node in flow.nodes
        ],
    }
