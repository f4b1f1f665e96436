"""Flow: how far a flow is, drawn from its first jobs to its last.

What there is to draw is found in `flows.status`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, with_options
from penstock.errors import Refused
from penstock.operate.typed_values import pairs_of

if TYPE_CHECKING:
    import rich.text

    from penstock.broker.protocol import Broker
    from penstock.flows.flow import FlowRow, NodeRow
    from penstock.flows.status import JobsByNode


@with_options
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
    store: Store,
    json: Json = False,
) -> None:
    """Draw a flow: what has ended, what runs and since when, what waits.

    Example: penstock flow --name access --find user=62
    """
    from penstock.cli import output
    from penstock.cli.store_choice import opened
    from penstock.enqueue.ids import parse_id
    from penstock.flows.status import flow_json, flow_with, look_at
    from penstock.operate.sentences import no_such_flow

    if (id is None) == (name is None) or (find and name is None):
        raise Refused("flow takes an id, or --name with any number of --find PROPERTY=VALUE")
    wanted = None if id is None else parse_id(id)
    properties = pairs_of(find, "--find")
    with opened(*store) as broker:
        if wanted is None:
            found = next(iter(broker.flows(name, properties, limit=1).flows), None)
        else:
            found = flow_with(broker, wanted)
        if found is None:
            if json:
                asked = {"name": name, "find": properties} if wanted is None else {"id": wanted}
                output.put_json({**asked, "known": False})
            elif wanted is None:
                output.say(f"no flow {' '.join([name or '', *(find or [])])} is stored here.")
            else:
                output.say(no_such_flow(wanted))
            raise typer.Exit(1)
        described = flow_json(found, look_at(broker, found)) if json else None
        lines = [] if json else drawn(broker, found)
    if json:
        output.put_json(described)
    for line in lines:
        output.console().print(line, soft_wrap=True)


def drawn(broker: Broker, flow: FlowRow) -> list[rich.text.Text]:
    """How far a flow is, for people: a summary, its state, and a line for each node."""
    import rich.text

    from penstock.flows.status import look_at

    now = broker.clock.now()
    lines = [rich.text.Text(_summary(flow, now))]
    if flow.state != b"{}":
        lines.append(rich.text.Text(f"  state {flow.state.decode()}"))
    return lines + _lines(flow, look_at(broker, flow), now)


def _summary(flow: FlowRow, now: float) -> str:
    from penstock.broker.filter import as_text
    from penstock.operate.why import span

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


def _lines(flow: FlowRow, look: JobsByNode, now: float) -> list[rich.text.Text]:
    import rich.text

    from penstock.cli import output
    from penstock.flows.flow import levels_of
    from penstock.operate.why import span
    from penstock.run.error_text import headline

    levels = levels_of(flow.nodes)
    widest = max(2 * levels[node.id] + len(node.task) for node in flow.nodes)
    lines: list[rich.text.Text] = []
    for node in flow.nodes:
        state = look.state_of(node)
        line = rich.text.Text("  " * (1 + levels[node.id]))
        line.append(node.task.ljust(widest - 2 * levels[node.id] + 2))
        line.append(f"{state:<10}", output.COLOURS.get(state, ""))
        line.append(_counted(node))
        if node.needs_left and node.jobs_left:
            line.append(f", waits for {node.needs_left} of its {len(node.needs)} needs", "dim")
        if node.id in look.awaited:
            line.append(f", waits for the signal {look.awaited[node.id]!r}", "dim")
        if jobs := look.running.get(node.id):
            longest = jobs[0]
            for_ = span(now - (longest.claimed_at or now))
            line.append(f", {len(jobs):,} running, the longest for {for_} ({longest.id})", "yellow")
        if jobs := look.failed.get(node.id):
            said = headline(jobs[0].error) or jobs[0].reason or "failed"
            line.append(f", {jobs[0].id}: {said}", "red")
        lines.append(line)
    return lines


def _counted(node: NodeRow) -> str:
    ended = node.jobs - node.jobs_left
    bad = f", {node.bad:,} without success" if node.bad else ""
    goes_on = ", goes on without" if node.on_failure == "continue" and node.needs else ""
    return f"{ended:,} of {node.jobs:,} ended{bad}{goes_on}"
