"""find, why, count: read a store and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, Store, reject_unknown_options, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILTER",
        help="field:value, or -field:value to exclude. Fields: task, queue, state, due (now or "
        "later), key, reason, app, tag.NAME, arg.NAME, since, until. Times: 2h, 3d, 2026-11-15.",
        show_default=False,
    ),
]


@with_options
def find(
    words: Words = None,
    *,
    limit: Annotated[int, typer.Option(help="The most jobs to show.", min=1)] = 20,
    after: Annotated[
        str | None,
        typer.Option(
            help="Continue after this, as the last line of a page prints it.", show_default=False
        ),
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", help="Only jobs of detached tasks.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long lines.")] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Find jobs, newest first.

    Example: penstock find state:failed task:mail:send since:2h -tag.tenant:test
    """
    from penstock.broker.filter import parse_filter
    from penstock.cli import output
    from penstock.cli.find_table import job_table
    from penstock.cli.store_choice import open_store
    from penstock.job import DETACHED
    from penstock.operate import to_json

    with open_store(*store) as broker:
        now = broker.clock.now()
        only = [f"tag.{name}:{value}" for name, value in DETACHED.items()] if detached else []
        filter = parse_filter([*reject_unknown_options(words or []), *only], now)
        page = broker.find(filter, _cursor(broker, after), limit)
        found = list(page.jobs)
        while page.after is not None and len(found) < limit:
            page = broker.find(filter, page.after, limit - len(found))
            found += page.jobs
    output.note_sealed(job.body for job in found)
    if json:
        output.print_json_lines(to_json.job_json(job) for job in found)
        return
    if not found:
        output.print_note("no job matches")
        return
    console = output.console()
    for line in job_table(found, now, None if full else console.width):
        console.print(line, soft_wrap=True)
    if page.after is not None:
        output.print_note(f"there is more: --after {page.after}")


def _cursor(broker: Broker, after: str | None) -> str | None:
    """The cursor of --after; a derived id holds no time, so its job is read."""
    from penstock.broker.newest_first import made
    from penstock.enqueue.ids import is_derived, parse_id

    if not after or "@" in after or not is_derived(parse_id(after)):
        return after or None
    job = broker.get(parse_id(after))
    return after if job is None else str(made(job))


@with_options
def why(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A job's id; or queue:NAME, task:NAME, worker:ID, flow:ID, schedule:NAME. A name "
            "that only one of them has is enough.",
            show_default=False,
        ),
    ],
    *,
    store: Store,
    json: Json = False,
) -> None:
    """Say why a job is in its state, or what a queue, worker, flow or schedule waits for.

    Example: penstock why queue:mail
    """
    from penstock.cli import output
    from penstock.cli.detached import progress_json, progress_sentences, running_progress
    from penstock.cli.store_choice import open_store
    from penstock.enqueue.ids import parse_id
    from penstock.operate import to_json

    try:
        job_id = parse_id(target)
    except Refused:
        _why_named(target, store, json=json)
        return
    with open_store(*store) as broker:
        answer = broker.why(job_id)
        job = broker.get(job_id)
        progress = (None, None) if job is None else running_progress(broker, job)
    output.note_sealed([None if job is None else job.body])
    if json:
        output.print_json(
            {
                "id": job_id,
                "state": answer.state,
                "cause": answer.cause,
                "sentence": answer.sentence,
                "ahead": answer.ahead,
                "job": None if job is None else to_json.job_json(job),
                **progress_json(*progress),
            }
        )
    else:
        if job is not None:
            app = f", app {job.app}" if job.app else ""
            output.print_note(f"{job.task}({to_json.call_text(job.body)}), queue {job.queue}{app}")
        output.print_text(answer.sentence)
        for sentence in progress_sentences(*progress):
            output.print_text(f"{sentence[0].upper()}{sentence[1:]}.")
    if job is None:
        raise typer.Exit(1)


def _why_named(target: str, store: Store, *, json: bool) -> None:
    """The findings about something that is not a job."""
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.operate.refusals import NotFound
    from penstock.operate.why_named import why_named

    with open_store(*store) as broker:
        try:
            of, findings = why_named(broker, target)
        except NotFound as error:
            if json:
                output.print_json({"of": target, "findings": None, "sentence": str(error)})
            else:
                output.print_text(str(error))
            raise typer.Exit(1) from None
    if json:
        output.print_json({"of": of, "findings": findings})
        return
    output.print_note(of)
    for finding in findings:
        output.print_finding(finding)


@with_options
def count(
    *,
    by_task: Annotated[
        bool, typer.Option("--by-task", help="One row per task instead of per queue.")
    ] = False,
    reasons: Annotated[
        bool,
        typer.Option("--reasons", help="Count ends and put-backs by their reason instead."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(help="With --reasons: ends since then, as 2h or 2026-11-15; 1h without it."),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Count jobs by queue and state. Succeeded and cancelled jobs are not counted.

    With --reasons: why attempts ended, from the history, and how many jobs were put back, since
    they started, by the workers that are alive.

    Example: penstock count --by-task
    """
    if reasons:
        _count_reasons(since or "1h", store, json=json)
        return
    if since is not None:
        raise Refused("--since goes with --reasons: what is counted otherwise is what stands now")
    from penstock.broker.views import by_queue
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.operate.counts import queue_json

    with open_store(*store) as broker:
        counts = broker.count()
        sizes: Mapping[str, int] = {} if by_task else broker.traits.queue_bytes()
    if json:
        rows = counts if by_task else by_queue(counts)
        for row in rows:
            output.print_json(row if by_task else queue_json(row, sizes.get(row.queue)))
        return
    if not counts:
        output.print_note("no job is waiting, running or failed")
        return
    output.console().print(output.counts_table(counts, by_task=by_task, sizes=sizes))


def _count_reasons(since: str, store: Store, *, json: bool) -> None:
    from rich.text import Text

    from penstock.broker.filter import parse_time
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.operate.reasons import read_reasons
    from penstock.operate.time_text import time_text

    with open_store(*store) as broker:
        asked = parse_time(since, broker.clock.now())
        found = read_reasons(broker, asked)
    if json:
        output.print_json_lines(found.counts)
        return
    if not found.counts:
        output.print_note(f"nothing ended or was put back since {time_text(asked)}")
        return
    made = output.table("queue", "outcome", "reason", "count", right=("count",))
    for each in found.counts:
        made.add_row(*map(Text, (each.queue, each.outcome, each.reason, f"{each.count:,}")))
    output.console().print(made)
    if found.since > asked:
        output.print_note(f"the history since {time_text(found.since)} was read: there is more")
