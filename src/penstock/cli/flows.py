"""flow: the progress of a flow, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, with_options
from penstock.errors import Refused
from penstock.operate.parse_input import parse_pairs

if TYPE_CHECKING:
    import rich.text

    from penstock.broker.protocol import Broker
    from penstock.flows.flow import FlowRow, NodeRow
    from penstock.flows.status import JobsByNode


@with_options
def flow(
    id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The id of a flow, or of one of its jobs.", show_default=False
        ),
    ] = None,
    *,
    name: Annotated[
        str | None,
        typer.Option(help="Instead of an id: the newest flow of this name.", show_default=False),
    ] = None,
    find: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROPERTY=VALUE",
            help="With --name: only with this property; may be repeated.",
            show_default=False,
        ),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Show the progress of a flow: what ended, what runs, what waits.

    Example: penstock flow --name access --find user=62
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.enqueue.ids import parse_id
    from penstock.flows.status import flow_json, flow_with, look_at
    from penstock.operate.sentences import no_such_flow_text

    if (id is None) == (name is None) or (find and name is None):
        raise Refused("give the id of a flow, or --name, if needed with --find PROPERTY=VALUE")
    flow_id = None if id is None else parse_id(id)
    properties = parse_pairs(find, "--find")
    with open_store(*store) as broker:
        if flow_id is None:
            found = next(iter(broker.flows(name, properties, limit=1).flows), None)
        else:
            found = flow_with(broker, flow_id)
        if found is None:
            if json:
                query = {"name": name, "find": properties} if flow_id is None else {"id": flow_id}
                output.print_json({**query, "known": False})
            elif flow_id is None:
                output.print_text(
                    f"no flow {' '.join([name or '', *(find or [])])} is stored here."
                )
            else:
                output.print_text(no_such_flow_text(flow_id))
            raise typer.Exit(1)
        described = flow_json(found, look_at(broker, found)) if json else None
        lines = [] if json else drawn(broker, found)
    if json:
        output.print_json(described)
    for line in lines:
        output.console().print(line, soft_wrap=True)


def drawn(broker: Broker, flow: FlowRow) -> list[rich.text.Text]:
    """A summary of the flow, its state, and a line for each node."""
    import rich.text

    from penstock.flows.status import look_at

    now = broker.clock.now()
    lines = [rich.text.Text(_summary(flow, now))]
    if flow.state != b"{}":
        lines.append(rich.text.Text(f"  state {flow.state.decode()}"))
    return lines + _lines(flow, look_at(broker, flow), now)


def _summary(flow: FlowRow, now: float) -> str:
    from penstock.operate.flow_progress import flow_progress
    from penstock.operate.time_text import duration_text

    _, find, jobs, left, bad = flow_progress(flow)
    name = " ".join(["", flow.name, *find]) if flow.name else ""
    if flow.ended_at is not None:
        failed = f", {bad:,} of them without success" if bad else ""
        took = duration_text(flow.ended_at - flow.created_at)
        return f"flow{name} {flow.id}: all {jobs:,} jobs ended{failed}, after {took}"
    since = duration_text(now - flow.created_at)
    return f"flow{name} {flow.id}: {jobs - left:,} of {jobs:,} jobs ended, in {since}"


def _lines(flow: FlowRow, look: JobsByNode, now: float) -> list[rich.text.Text]:
    import rich.text

    from penstock.cli import output
    from penstock.flows.flow import levels_of
    from penstock.operate.time_text import duration_text
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
            for_ = duration_text(now - (longest.claimed_at or now))
            line.append(f", {len(jobs):,} running, the longest for {for_} ({longest.id})", "yellow")
        if jobs := look.failed.get(node.id):
            error = headline(jobs[0].error) or jobs[0].reason or "failed"
            line.append(f", {jobs[0].id}: {error}", "red")
        lines.append(line)
    return lines


def _counted(node: NodeRow) -> str:
    ended = node.jobs - node.jobs_left
    bad = f", {node.bad:,} without success" if node.bad else ""
    goes_on = (
        ", the flow continues without it" if node.on_failure == "continue" and node.needs else ""
    )
    return f"{ended:,} of {node.jobs:,} ended{bad}{goes_on}"
