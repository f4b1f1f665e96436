"""Look: find, why, count, history. None of them changes anything, or makes a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, no_stray_options, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.position import Position
    from penstock.broker.protocol import Broker
    from penstock.broker.views import Event

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="field:value, or -field:value to exclude. Fields: task, queue, state, due (now or "
        "later), key, reason, app, tag.NAME, arg.NAME, since, until.",
        show_default=False,
    ),
]


@with_options
def find(
    words: Words = None,
    *,
    limit: Annotated[int, typer.Option(help="Most jobs to show.", min=1)] = 20,
    after: Annotated[
        str | None, typer.Option(help="Go on below this job.", show_default=False)
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", help="Only jobs of detached tasks.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Cut nothing off, however long a line gets.")
    ] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Find jobs, newest first.

    Example: penstock find state:failed task:mail:send since:2h -tag.tenant:test
    """
    from penstock.broker.filter import parse_filter
    from penstock.cli import output
    from penstock.cli.job_lines import job_lines
    from penstock.cli.store_choice import opened
    from penstock.job import DETACHED
    from penstock.operate import to_json

    with opened(*store) as broker:
        now = broker.clock.now()
        only = [f"tag.{name}:{value}" for name, value in DETACHED.items()] if detached else []
        wanted = parse_filter([*no_stray_options(words or []), *only], now)
        page = broker.find(wanted, _place(broker, after), limit)
        found = list(page.jobs)
        while page.after is not None and len(found) < limit:
            page = broker.find(wanted, page.after, limit - len(found))
            found += page.jobs
    if json:
        output.put_json_lines(to_json.job_json(job) for job in found)
        return
    if not found:
        output.aside("no job matches")
        return
    console = output.console()
    for line in job_lines(found, now, None if full else console.width):
        console.print(line, soft_wrap=True)
    if page.after is not None:
        output.aside(f"there is more: --after {page.after}")


def _place(broker: Broker, after: str | None) -> str | None:
    """Where to go on; of an id that holds no time, where its job is."""
    from penstock.broker.newest_first import made
    from penstock.enqueue.ids import is_derived, parse_id

    if not after or "@" in after or not is_derived(parse_id(after)):
        return after or None
    job = broker.get(parse_id(after))
    return after if job is None else str(made(job))


@with_options
def why(
    id: Annotated[str, typer.Argument(metavar="ID", help="A job's id.", show_default=False)],
    *,
    store: Store,
    json: Json = False,
) -> None:
    """Say why a job is where it is.

    Example: penstock why 0190a6c4-5e1f-7000-8000-00000a1b2000
    """
    from penstock.cli import output
    from penstock.cli.detached import facts, sentences, told_of
    from penstock.cli.store_choice import opened
    from penstock.enqueue.ids import parse_id
    from penstock.operate import to_json

    job_id = parse_id(id)
    with opened(*store) as broker:
        answer = broker.why(job_id)
        job = broker.get(job_id)
        told = (None, None) if job is None else told_of(broker, job)
    if json:
        output.put_json(
            {
                "id": job_id,
                "state": answer.state,
                "cause": answer.cause,
                "sentence": answer.sentence,
                "job": None if job is None else to_json.job_json(job),
                **facts(*told),
            }
        )
    else:
        if job is not None:
            whose = f", app {job.app}" if job.app else ""
            output.aside(f"{job.task}({to_json.call_text(job.body)}), queue {job.queue}{whose}")
        output.say(answer.sentence)
        for sentence in sentences(*told):
            output.say(f"{sentence[0].upper()}{sentence[1:]}.")
    if job is None:
        raise typer.Exit(1)


@with_options
def count(
    *,
    by_task: Annotated[bool, typer.Option("--by-task", help="A row per task.")] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Count jobs by where they stand; ended ones but failed are history.

    Example: penstock count --by-task
    """
    import msgspec

    from penstock.broker.views import by_queue
    from penstock.cli import output
    from penstock.cli.store_choice import opened

    with opened(*store) as broker:
        counts = broker.count()
    if json:
        rows = counts if by_task else by_queue(counts)
        for row in rows:
            numbers = msgspec.structs.asdict(row)
            if not by_task:
                del numbers["task"], numbers["app"]
            output.put_json(numbers)
        return
    if not counts:
        output.aside("nothing is waiting, running or failed")
        return
    output.console().print(output.counts_table(counts, by_task=by_task))


@with_options
def history(
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Of this job alone.", show_default=False),
    ] = None,
    *,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="Rows after this position, as --json has it; 0: all. Without it the last ones.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Most rows to show.", min=1)] = 20,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as it happens.")] = False,
    tree: Annotated[
        bool, typer.Option("--tree", help="With the jobs that it enqueued, and those of these.")
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="Only who did what, when and why; newest first.")
    ] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="--audit: cancel, retry, delete, rule, schedule, flow or lake; may be given again."
        ),
    ] = None,
    author: Annotated[
        str | None, typer.Option(help="--audit: of this one.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="--audit: 2h, 3d (ago), or a time.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="--audit: as --since.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION", help="--audit: go on before this position.", show_default=False
        ),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Show what happened: one row per ended attempt, and who did what.

    Example: penstock history --follow
    """
    from penstock.broker.position import BEGINNING
    from penstock.cli.store_choice import opened
    from penstock.enqueue.ids import parse_id

    job_id = None if id is None else parse_id(id)
    if audit:
        if job_id is not None or follow or tree or after is not None:
            raise Refused("--audit goes by itself: leave out the id, --after, --follow and --tree")
        from penstock.cli.audit import put_audit

        with opened(*store) as broker:
            asked = (kind or [], author or "", since, until)
            put_audit(broker, asked, before, limit, json=json)
        return
    if kind or author or since or until or before:
        raise Refused("--kind, --author, --since, --until and --before go with --audit")
    if follow and job_id is not None:
        raise Refused("--follow goes with the whole history: leave out the id")
    if tree:
        if job_id is None:
            raise Refused("--tree goes with an id: penstock history ID --tree")
        with opened(*store) as broker:
            _put_tree(broker, job_id, after, limit, json=json)
        return
    with opened(*store) as broker:
        rows = broker.history(after=after, limit=limit, job=job_id)
        position = _put(rows, json=json) or after or BEGINNING
        while follow:
            rows = broker.history(after=position, limit=1000)
            position = _put(rows, json=json) or position
            if not rows:
                broker.wait(None, 1.0)
    if not rows and not json:
        from penstock.cli import output

        output.aside("nothing has happened yet")


def _put_tree(
    broker: Broker, job_id: str, after: Position | None, limit: int, *, json: bool
) -> None:
    import rich.text

    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.job_tree import family

    found = family(broker, job_id, after=after, limit=limit)
    for branch in found.branches:
        if json:
            output.put_json(
                {
                    "id": branch.id,
                    "parent": branch.parent,
                    "level": branch.level,
                    "task": branch.task,
                    "state": branch.state,
                    "jobs": branch.jobs,
                    "jobs_left": branch.jobs_left,
                    "events": [to_json.event_json(event) for event in branch.events],
                }
            )
            continue
        indent = "  " * branch.level
        line = rich.text.Text(f"{indent}{branch.id}  {branch.task or 'not known here'}  ")
        line.append(branch.state or "", output.COLOURS.get(branch.state or "", ""))
        if branch.jobs > 1:
            line.append(f"{branch.jobs - branch.jobs_left:,} of {branch.jobs:,} jobs ended")
        output.console().print(line, soft_wrap=True)
        for event in branch.events:
            line = rich.text.Text(f"{indent}  ")
            output.console().print(line.append_text(output.event_line(event)), soft_wrap=True)
    if found.more and not json:
        output.aside("there are more jobs below it than are shown")


def _put(rows: list[Event], *, json: bool) -> Position | None:
    from penstock.cli import output
    from penstock.operate import to_json

    for event in rows:
        if json:
            output.put_json(to_json.event_json(event))
        elif event.kind != "gauge":  # for programs: there is one per queue and minute
            output.console().print(output.event_line(event), soft_wrap=True)
    return rows[-1].position if rows else None
