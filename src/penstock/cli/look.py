"""Look: find, why, count, history. None of them changes anything, or makes a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AppTarget, Json, Profile, Url, no_stray_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.views import Event

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="field:value, or -field:value to exclude. Fields: task, queue, state, due (now or "
        "later), key, reason, tag.NAME, arg.NAME, since, until.",
        show_default=False,
    ),
]


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
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Find jobs, newest first.

    Example: penstock find state:failed task:mail:send since:2h -tag.tenant:test
    """
    from penstock import as_json
    from penstock.cli import show
    from penstock.cli.job_lines import job_lines
    from penstock.cli.place import opened
    from penstock.filter import parse_filter
    from penstock.job import DETACHED

    with opened(url, profile, app) as broker:
        now = broker.clock.now()
        only = [f"tag.{name}:{value}" for name, value in DETACHED.items()] if detached else []
        wanted = parse_filter([*no_stray_options(words or []), *only], now)
        page = broker.find(wanted, _place(broker, after), limit)
        found = list(page.jobs)
        while page.after is not None and len(found) < limit:
            page = broker.find(wanted, page.after, limit - len(found))
            found += page.jobs
    if json:
        show.put_json_lines(as_json.job_json(job) for job in found)
        return
    if not found:
        show.aside("no job matches")
        return
    console = show.console()
    for line in job_lines(found, now, None if full else console.width):
        console.print(line, soft_wrap=True)
    if page.after is not None:
        show.aside(f"there is more: --after {page.after}")


def _place(broker: Broker, after: str | None) -> str | None:
    """Where to go on; of an id that holds no time, where its job is."""
    from penstock.ids import is_derived, parse_id
    from penstock.made import made

    if not after or "@" in after or not is_derived(parse_id(after)):
        return after or None
    job = broker.get(parse_id(after))
    return after if job is None else str(made(job))


def why(
    id: Annotated[str, typer.Argument(metavar="ID", help="A job's id.", show_default=False)],
    *,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Say why a job is where it is.

    Example: penstock why 0190a6c4-5e1f-7000-8000-00000a1b2000
    """
    from penstock import as_json
    from penstock.cli import show
    from penstock.cli.detached import facts, sentences, told_of
    from penstock.cli.place import opened
    from penstock.ids import parse_id

    job_id = parse_id(id)
    with opened(url, profile, app) as broker:
        answer = broker.why(job_id)
        job = broker.get(job_id)
        told = (None, None) if job is None else told_of(broker, job)
    if json:
        show.put_json(
            {
                "id": job_id,
                "state": answer.state,
                "cause": answer.cause,
                "sentence": answer.sentence,
                "job": None if job is None else as_json.job_json(job),
                **facts(*told),
            }
        )
    else:
        if job is not None:
            show.aside(f"{job.task}({as_json.call_text(job.body)}), queue {job.queue}")
        show.say(answer.sentence)
        for sentence in sentences(*told):
            show.say(f"{sentence[0].upper()}{sentence[1:]}.")
    if job is None:
        raise typer.Exit(1)


def count(
    *,
    by_task: Annotated[bool, typer.Option("--by-task", help="A row per task.")] = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Count jobs by where they stand; ended ones but failed are history.

    Example: penstock count --by-task
    """
    import msgspec

    from penstock.cli import show
    from penstock.cli.place import opened
    from penstock.views import by_queue

    with opened(url, profile, app) as broker:
        counts = broker.count()
    if json:
        rows = counts if by_task else by_queue(counts)
        for row in rows:
            numbers = msgspec.structs.asdict(row)
            if not by_task:
                del numbers["task"]
            show.put_json(numbers)
        return
    if not counts:
        show.aside("nothing is waiting, running or failed")
        return
    show.console().print(show.counts_table(counts, by_task=by_task))


def history(
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Of this job alone.", show_default=False),
    ] = None,
    *,
    after: Annotated[
        int | None,
        typer.Option(help="Rows after this position; without it the last ones.", min=0),
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
        int | None, typer.Option(help="--audit: go on below this position.", min=1)
    ] = None,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Show what happened: one row per ended attempt, and who did what.

    Example: penstock history --follow
    """
    from penstock.cli.place import opened
    from penstock.ids import parse_id

    job_id = None if id is None else parse_id(id)
    if audit:
        if job_id is not None or follow or tree or after is not None:
            raise Refused("--audit goes by itself: leave out the id, --after, --follow and --tree")
        from penstock.cli.audit import put_audit

        with opened(url, profile, app) as broker:
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
        with opened(url, profile, app) as broker:
            _put_tree(broker, job_id, after, limit, json=json)
        return
    with opened(url, profile, app) as broker:
        rows = broker.history(after=after, limit=limit, job=job_id)
        position = _put(rows, json=json) or after or 0
        while follow:
            rows = broker.history(after=position, limit=1000)
            position = _put(rows, json=json) or position
            if not rows:
                broker.wait(None, 1.0)
    if not rows and not json:
        from penstock.cli import show

        show.aside("nothing has happened yet")


def _put_tree(broker: Broker, job_id: str, after: int | None, limit: int, *, json: bool) -> None:
    import rich.text

    from penstock import as_json
    from penstock.cli import show
    from penstock.family import family

    found = family(broker, job_id, after=after, limit=limit)
    for branch in found.branches:
        if json:
            show.put_json(
                {
                    "id": branch.id,
                    "parent": branch.parent,
                    "level": branch.level,
                    "task": branch.task,
                    "state": branch.state,
                    "jobs": branch.jobs,
                    "jobs_left": branch.jobs_left,
                    "events": [as_json.event_json(event) for event in branch.events],
                }
            )
            continue
        indent = "  " * branch.level
        line = rich.text.Text(f"{indent}{branch.id}  {branch.task or 'not known here'}  ")
        line.append(branch.state or "", show.COLOURS.get(branch.state or "", ""))
        if branch.jobs > 1:
            line.append(f"{branch.jobs - branch.jobs_left:,} of {branch.jobs:,} jobs ended")
        show.console().print(line, soft_wrap=True)
        for event in branch.events:
            line = rich.text.Text(f"{indent}  ")
            show.console().print(line.append_text(show.event_line(event)), soft_wrap=True)
    if found.more and not json:
        show.aside("there are more jobs below it than are shown")


def _put(rows: list[Event], *, json: bool) -> int | None:
    from penstock import as_json
    from penstock.cli import show

    for event in rows:
        if json:
            show.put_json(as_json.event_json(event))
        elif event.kind != "gauge":  # for programs: there is one per queue and minute
            show.console().print(show.event_line(event), soft_wrap=True)
    return rows[-1].position if rows else None
