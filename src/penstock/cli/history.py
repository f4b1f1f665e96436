"""history: what happened to jobs, and with --audit who did what; rows, a tree, or live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    import rich.text

    from penstock.broker.position import Position
    from penstock.broker.protocol import Broker
    from penstock.broker.views import Event
    from penstock.operate.audit import AuditEntry, AuditQuery


@with_options
def history(
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Only this job.", show_default=False),
    ] = None,
    *,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="Rows after this position, as --json prints it; 0: from the first row. "
            "Without it, the last rows.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="The most rows to show.", min=1)] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print new rows as they are written.")
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree", help="Also the jobs that it enqueued, and the jobs that those enqueued."
        ),
    ] = False,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit", help="Only what people did: who, what, when and why; newest first."
        ),
    ] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="--audit: cancel, retry, delete, rule, schedule, flow or lake; may be repeated."
        ),
    ] = None,
    author: Annotated[
        str | None, typer.Option(help="--audit: only by this person.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="--audit: from this time on: 2h, 3d (ago), or 2026-11-15.", show_default=False
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="--audit: up to this time.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION", help="--audit: continue before this position.", show_default=False
        ),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Show the history: one row per ended attempt, and what people did.

    Example: penstock history --follow
    """
    from penstock.broker.position import BEGINNING
    from penstock.cli.store_choice import open_store
    from penstock.enqueue.ids import parse_id

    job_id = None if id is None else parse_id(id)
    if audit:
        if job_id is not None or follow or tree or after is not None:
            raise Refused("--audit cannot be combined with an id, --after, --follow or --tree")
        from penstock.operate.audit import audit_query

        with open_store(*store) as broker:
            query = audit_query(kind or [], author or "", since, until, broker.clock.now())
            _print_audit(broker, query, before, limit, json=json)
        return
    if kind or author or since or until or before:
        raise Refused("--kind, --author, --since, --until and --before need --audit")
    if follow and job_id is not None:
        raise Refused("--follow shows the whole history: leave out the id")
    if tree:
        if job_id is None:
            raise Refused("--tree needs a job: penstock history ID --tree")
        with open_store(*store) as broker:
            _print_tree(broker, job_id, after, limit, json=json)
        return
    with open_store(*store) as broker:
        rows = broker.history(after=after, limit=limit, job=job_id)
        _print_job(broker, None if json else job_id)
        position = _print_rows(rows, json=json) or after or BEGINNING
        while follow:
            rows = broker.history(after=position, limit=1000)
            position = _print_rows(rows, json=json) or position
            if not rows:
                broker.wait(None, 1.0)
    if not rows and not json:
        from penstock.cli import output

        output.print_note("the history is empty")


def _print_job(broker: Broker, job_id: str | None) -> None:
    """What the rows of one job are about: the call, its state, and when it was enqueued."""
    if job_id is None:
        return
    from penstock.cli import output
    from penstock.operate.time_text import relative_time
    from penstock.operate.to_json import call_text

    job = broker.get(job_id)
    if job is None:
        output.print_note(f"job {job_id} is no longer kept; this is its history")
        return
    enqueued = relative_time(job.enqueued_at, broker.clock.now())
    call = f"{job.task}({call_text(job.body)})"
    output.print_note(f"{call}, queue {job.queue}, enqueued {enqueued}: {job.state}")


def _print_tree(
    broker: Broker, job_id: str, after: Position | None, limit: int, *, json: bool
) -> None:
    import rich.text

    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.job_tree import read_job_tree

    tree = read_job_tree(broker, job_id, after=after, limit=limit)
    for node in tree.nodes:
        if json:
            output.print_json(
                {
                    "id": node.id,
                    "parent": node.parent,
                    "level": node.level,
                    "task": node.task,
                    "state": node.state,
                    "jobs": node.jobs,
                    "jobs_left": node.jobs_left,
                    "events": [to_json.event_json(event) for event in node.events],
                }
            )
            continue
        indent = "  " * node.level
        line = rich.text.Text(f"{indent}{node.id}  {node.task or 'unknown task'}  ")
        line.append(node.state or "", output.COLOURS.get(node.state or "", ""))
        if node.jobs > 1:
            line.append(f"{node.jobs - node.jobs_left:,} of {node.jobs:,} jobs ended")
        output.console().print(line, soft_wrap=True)
        for event in node.events:
            line = rich.text.Text(f"{indent}  ")
            output.console().print(line.append_text(output.event_line(event)), soft_wrap=True)
    if tree.more and not json:
        output.print_note(f"only the first {len(tree.nodes):,} jobs of the tree are shown")


def _print_rows(rows: list[Event], *, json: bool) -> Position | None:
    from penstock.broker.views import MEASURED
    from penstock.cli import output
    from penstock.operate import to_json

    for event in rows:
        if json:
            output.print_json(to_json.event_json(event))
        elif event.kind not in MEASURED:  # several a minute: for programs
            output.console().print(output.event_line(event), soft_wrap=True)
    if json:
        output.note_sealed(event.body for event in rows)
    return rows[-1].position if rows else None


def _print_audit(
    broker: Broker, query: AuditQuery, before: Position | None, limit: int, *, json: bool
) -> None:
    """Entries, newest first, and how to continue if there are more."""
    from penstock.cli import output
    from penstock.operate.audit import audit_entry_json, read_audit

    left = limit
    while left:
        page = read_audit(broker, query, before, left)
        for entry in page.entries:
            if json:
                output.print_json(audit_entry_json(entry))
            else:
                output.console().print(_audit_line(entry), soft_wrap=True)
        left -= len(page.entries)
        if (before := page.before) is None:
            break
    if not json and before is not None:
        output.print_note(f"there is more: --before {before}")
    elif not json and left == limit:
        output.print_note("no such action was found")


def _audit_line(entry: AuditEntry) -> rich.text.Text:
    import rich.text

    from penstock.operate.audit_text import audit_sentence
    from penstock.operate.time_text import time_text

    line = rich.text.Text(f"{time_text(entry.at)}  ", "dim")
    line.append(entry.author or "a program", "bold")
    if entry.login is not None:
        line.append(f" (login {entry.login})", "dim")
    line.append(f"  {audit_sentence(entry)}")
    if entry.reason:
        line.append(f"  {entry.reason}", "italic")
    return line
