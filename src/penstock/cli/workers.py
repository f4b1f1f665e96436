"""workers: list workers with what they run now; change their numbers, quiet or stop them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.broker.views import WorkerRow
    from penstock.job import Job

_MOST_NAMED = 5  # running jobs of one process, in the table


class WorkersVerb(StrEnum):
    """What to do."""

    LIST = "list"
    SET = "set"
    QUIET = "quiet"
    RESUME = "resume"
    STOP = "stop"
    RESET = "reset"


@with_options
def workers(
    verb: Annotated[
        WorkersVerb,
        typer.Argument(metavar="list|set|quiet|resume|stop|reset", help="What to do."),
    ] = WorkersVerb.LIST,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A worker: its --name, or HOST-PID as the list shows it.",
            show_default=False,
        ),
    ] = None,
    *,
    threads: Annotated[
        int | None, typer.Option(help="set: threads per child process.", show_default=False)
    ] = None,
    async_slots: Annotated[
        int | None,
        typer.Option(help="set: jobs of `async def` tasks per child process.", show_default=False),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="set: child processes.", show_default=False)
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            help="set: child processes of a queue, as mail=2, for a worker started with --queue;"
            " may be repeated.",
            show_default=False,
        ),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """List workers and what they run now; change a running worker.

    set: other numbers of threads, async slots and processes, within seconds and without a restart.
    quiet: claim nothing more, finish what runs; resume ends that. stop: as SIGTERM. reset: as it
    was started. Under a worker's --name settings stand for its next start, too.

    Example: penstock workers set mail-1 --threads 20 --reason "backlog"
    """
    from penstock.broker.worker_settings import WorkerSettings
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.cli.worker import parse_queue_numbers
    from penstock.operate.worker_settings import settings_json, unknown_worker_text

    given = queue or any(number is not None for number in (threads, async_slots, processes))
    if verb is WorkersVerb.LIST and name is None and not given:
        with open_actions(store, person()) as (broker, _):
            _list(broker, json=json)
        return
    if verb is WorkersVerb.LIST or name is None:
        raise Refused("which worker? penstock workers set NAME --threads 20; the list names them")
    if (verb is WorkersVerb.SET) is not bool(given):
        raise Refused("set needs a number, as --threads 20; the other verbs take none")
    with open_actions(store, person()) as (broker, actions):
        unknown = unknown_worker_text(broker.workers(), name)
        if verb is WorkersVerb.RESET:
            known = actions.reset_worker(name, reason)
            said = "as it was started" if known else "as it was: nothing was set"
            result: dict[str, Any] = {"worker": name, "reset": known}
        else:
            quiet = {WorkersVerb.QUIET: True, WorkersVerb.RESUME: False}.get(verb)
            settings = WorkerSettings(
                worker=name,
                threads=threads,
                async_slots=async_slots,
                processes=processes,
                queues=parse_queue_numbers(queue),
                quiet=quiet,
                stop=verb is WorkersVerb.STOP,
            )
            kept = actions.set_worker(settings, reason)
            result = dict(settings_json(kept))
            said = "stops" if verb is WorkersVerb.STOP else kept.text
    if json:
        output.print_json(result)
    elif not (unknown and verb is WorkersVerb.STOP):
        output.print_text(f"worker {name}: {said}")
    if unknown:
        output.print_note(f"warning: {unknown}")
        if verb is WorkersVerb.STOP:
            raise typer.Exit(1)


def _list(broker: Broker, *, json: bool) -> None:
    from rich.text import Text

    from penstock.broker.worker_settings import WorkerSettings
    from penstock.cli import output
    from penstock.operate.task_places import REMEDY, defined_twice
    from penstock.operate.worker_health import worker_health
    from penstock.operate.worker_settings import jobs_by_worker

    rows = sorted(broker.workers(), key=lambda row: (row.group or row.id, row.id))
    held, now = jobs_by_worker(broker.find), broker.clock.now()
    records = {each.worker: each for each in broker.records(WorkerSettings)}
    twice = defined_twice(rows)
    if json:
        output.print_json_lines(
            {
                **_described(row, held.get(row.id, []), now),
                "warnings": [
                    str(each) for each in twice if each.app == row.app and each.task in row.tasks
                ],
            }
            for row in rows
        )
        return
    if not rows:
        output.print_note("no worker is alive: penstock worker myapp:app starts one")
        return
    made = output.table("worker", "process", "queues", "threads", "says", "runs now")
    for row in rows:
        jobs = held.get(row.id, [])
        named = [f"{job.task} {job.id}" for job in jobs[:_MOST_NAMED]]
        more = [f"and {row.running - len(named)} more"] if row.running > len(named) else []
        cells = (
            row.group or row.id,
            f"{row.pid} on {row.host}",
            "all" if row.queues is None else ", ".join(row.queues),
            str(row.threads or ""),
            worker_health(row, now)[1],
            "\n".join([*named, *more]),
        )
        made.add_row(*map(Text, cells))
    output.console().print(made)
    for name in dict.fromkeys(row.group for row in rows):
        if name in records:
            output.print_note(f"{name}: set to {records[name].text}")
    for each in twice:
        output.print_note(f"warning: {each}; {REMEDY}")


def _described(row: WorkerRow, jobs: list[Job[Any]], now: float) -> dict[str, Any]:
    from penstock.operate import to_json
    from penstock.operate.worker_health import worker_health

    return {
        "worker": row.group or row.id,
        "id": row.id,
        "host": row.host,
        "pid": row.pid,
        "state": row.state,
        "says": worker_health(row, now)[1],
        "queues": row.queues,
        "tags": sorted(row.tags),
        "threads": row.threads,
        "async_slots": row.async_slots,
        "quiet": row.quiet,
        "running": row.running,
        "jobs": [{"id": job.id, "task": job.task, "queue": job.queue} for job in jobs],
        "started_at": to_json.iso(row.started_at or None),
        "claimed_at": to_json.iso(row.claimed_at),
    }
