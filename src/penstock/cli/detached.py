"""penstock detached: what runs in processes of its own, on which host, and what it printed.

The list is the store's word alone; only logs are files of one host.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.broker.protocol import Broker
    from penstock.broker.views import WorkerRow
    from penstock.job import Job
    from penstock.operate.actions import Actions
    from penstock.run.job_notes import Progress
    from penstock.spark.application import Application

_FOLLOW_SECONDS = 0.2
_MOST = 1000


class DetachedCommand(StrEnum):
    LIST = "list"
    LOG = "log"
    CANCEL = "cancel"
    RUN = "run"


@with_options
def detached(
    act: Annotated[
        DetachedCommand,
        typer.Argument(metavar="list|log|cancel|run", help="What to do.", show_default=False),
    ] = DetachedCommand.LIST,
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A job's id.", show_default=False)
    ] = None,
    *,
    all: Annotated[  # noqa: A002  what a person types
        bool, typer.Option("--all", help="list: those that have ended, too.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="log: go on as it is written.")] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Look at and look after detached jobs, each in a process that outlives its worker.

    list: what waits and runs, and where. log: what it printed, on the host where it ran. cancel:
    end it, with all that it started. run: run one in the foreground, under the same lock.

    Example: penstock detached log 0190a6c4-5e1f-7000-8000-00000a1b2000 --follow
    """
    from penstock.cli.store_choice import acting
    from penstock.enqueue.ids import parse_id

    if (act is DetachedCommand.LIST) is not (id is None):
        raise Refused("list takes no id; log, cancel and run take one: penstock detached log ID")
    if act is DetachedCommand.RUN:
        raise typer.Exit(_run(parse_id(id or ""), *store))
    with acting(store, person()) as (broker, actions):
        if act is DetachedCommand.LIST:
            _list(broker, every=all, json=json)
        elif act is DetachedCommand.CANCEL:
            _cancel(broker, actions, parse_id(id or ""), reason, json=json)
        else:
            _log(broker, parse_id(id or ""), _folder(*store), follow=follow)


def _folder(url: str | None, profile: str | None, app: str | None) -> Path:
    from penstock.cli.store_choice import store_url
    from penstock.worker.detached.state_folder import state_folder

    return state_folder(store_url(url, profile, app).url)


def _list(broker: Broker, *, every: bool, json: bool) -> None:
    import rich.text

    from penstock.broker.filter import Filter
    from penstock.cli import output
    from penstock.job import DETACHED, ENDED, State

    states = () if every else tuple(state for state in State if state not in ENDED)
    tags = {name: (value,) for name, value in DETACHED.items()}
    jobs = broker.find(Filter(tags=tags, state=states), limit=_MOST).jobs
    rows = {row.id: row for row in broker.workers()}
    now = broker.clock.now()
    told = {job.id: told_of(broker, job) for job in jobs}
    if json:
        output.put_json_lines(
            _described(job, rows.get(job.worker or ""), *told[job.id]) for job in jobs
        )
        return
    if not jobs:
        output.aside(
            "there is no detached job"
            if every
            else "no detached job waits or runs; --all shows those that have ended"
        )
        return
    made = output.ids_table("task", "how far")
    for job in jobs:
        far = _how_far(job, rows.get(job.worker or ""), told[job.id][0], now)
        task, far = rich.text.Text(job.task), rich.text.Text(far)
        made.add_row(job.id, output.state_text(job.state), task, far)
    output.console().print(made)
    for job in jobs:
        for sentence in sentences(*told[job.id]):
            output.aside(f"{job.id}: {sentence}")
    if len(jobs) == _MOST:
        output.aside(
            f"the newest {_MOST}; `penstock find --detached --after {jobs[-1].id}` goes on"
        )


def _how_far(job: Job[Any], row: WorkerRow | None, progress: Progress | None, now: float) -> str:
    from penstock.job import State
    from penstock.operate.why import ago

    if job.state is not State.RUNNING:
        tried = f", {job.attempt} attempts" if job.attempt > 1 else ""
        return ago(job.ended_at or job.enqueued_at, now) + tried
    where = f"{row.host}, process {row.pid}" if row else "nowhere to be seen"
    held = "" if row and row.alive else ", not held"
    done = f", {progress.fraction:.0%} done" if progress else ""
    return f"attempt {job.attempt} {ago(job.claimed_at, now)} on {where}{held}{done}"


def told_of(broker: Broker, job: Job[Any]) -> tuple[Progress | None, Application | None]:
    """How far a running job says it is, and its Spark application, if it is one."""
    import msgspec

    from penstock.job import State
    from penstock.run.job_notes import Progress

    if job.state is not State.RUNNING:
        return None, None
    notes = broker.notes(job.id, "progress")
    progress = msgspec.json.decode(notes[-1].value, type=Progress) if notes else None
    if not broker.notes(job.id, "application"):
        return progress, None
    from penstock.spark.application import noted

    return progress, noted(broker, job.id)


def facts(progress: Progress | None, application: Application | None) -> dict[str, Any]:
    """The same, for programs."""
    import msgspec

    return {
        "progress": progress and {"fraction": progress.fraction, "note": progress.note},
        "application": application and msgspec.to_builtins(application),
    }


def sentences(progress: Progress | None, application: Application | None) -> list[str]:
    """The same, for people."""
    said: list[str] = []
    if progress is not None:
        said.append(f"{progress.fraction:.0%} done{progress.note and f': {progress.note}'}")
    if application is not None:
        said.append(f"attempt {application.attempt} is the Spark application {application}")
    return said


def _described(
    job: Job[Any],
    row: WorkerRow | None,
    progress: Progress | None,
    application: Application | None,
) -> dict[str, Any]:
    from penstock.operate import to_json

    return {
        "id": job.id,
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "reason": job.reason,
        "host": row.host if row else None,
        "pid": row.pid if row else None,
        "locked": bool(row and row.alive),
        "attempt": job.attempt,
        "failures": job.failures,
        "lapses": job.lapses,
        "enqueued_at": to_json.iso(job.enqueued_at or None),
        "claimed_at": to_json.iso(job.claimed_at),
        "ended_at": to_json.iso(job.ended_at),
        **facts(progress, application),
    }


def _cancel(broker: Broker, actions: Actions, id: str, reason: str, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import left_as_it_is

    told = actions.act("cancel", [id], reason).done
    if json:
        output.put_json({"id": id, "cancelled": bool(told)})
    elif told:
        output.say(
            f"job {id} is told to end; what has not ended after its worker's grace is killed"
        )
    else:
        output.say(left_as_it_is(id, broker.why(id).sentence))
    if not told:
        raise typer.Exit(1)


def _log(broker: Broker, id: str, folder: Path, *, follow: bool) -> None:
    import time

    from penstock.job import ENDED
    from penstock.worker.detached.state_folder import StateFolder

    try:
        log = StateFolder(folder).read_log(id)
    except FileNotFoundError:
        raise Refused(_no_log(broker, id, folder)) from None
    write = _writer()
    with os.fdopen(log, "rb") as lines:
        while True:
            job = broker.get(id)  # before the last look: what is written after it is not its own
            if os.fstat(log).st_size < lines.tell():  # cut to its size meanwhile
                lines.seek(0, 2)
            while part := lines.read(1 << 16):
                write(part)
            sys.stdout.flush()
            if not follow or job is None or job.state in ENDED:
                return
            time.sleep(_FOLLOW_SECONDS)


def _writer() -> Callable[[bytes], object]:
    """What writes a log to stdout: byte for byte, but to a terminal as text that orders nothing."""
    import codecs

    from penstock.cli.output import legible

    if not sys.stdout.isatty():
        return sys.stdout.buffer.write
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda part: sys.stdout.write(legible(decoder.decode(part)))


def _no_log(broker: Broker, id: str, folder: Path) -> str:
    from penstock.job import DETACHED

    job = broker.get(id)
    if job is None:
        return f"there is no job {id}: `penstock find --detached` shows those there are"
    if not DETACHED.items() <= job.tags.items():
        return f"job {id} is of {job.task}, which does not run detached: its worker has its output"
    if job.attempt == 0:
        return f"job {id} has not begun, and has no log: `penstock why {id}` says what it waits for"
    row = next((row for row in broker.workers() if row.id == job.worker), None)
    where = f"it runs on {row.host}" if row else "it ran on another host"
    return f"there is no log of job {id} in {folder}: {where}, or with another PENSTOCK_STATE"


def _run(id: str, url: str | None, profile: str | None, app: str | None) -> int:
    from penstock.cli.store_choice import checked, chosen, load
    from penstock.worker.detached.run_manually import run_manually

    if app is None:
        raise Refused(f"run needs the code: penstock detached run {id} --app myapp:app")
    with chosen(url, profile):
        loaded = checked(load(app), url)
        try:
            return run_manually(loaded, app, id)
        finally:
            loaded.close()
