"""detached: list detached jobs, show their logs, cancel one, or run one in the foreground.

The list comes from the store; a log is a file on the host where the job ran.
"""

from __future__ import annotations

import os
import re
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
        str | None,
        typer.Argument(
            metavar="ID", help="A job's id; run: or the path of a file.", show_default=False
        ),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS", help="run FILE: arguments of its main, name=value.", show_default=False
        ),
    ] = None,
    *,
    all: Annotated[  # noqa: A002  what a person types
        bool, typer.Option("--all", help="list: also jobs that have ended.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="log: print new lines as they are written.")
    ] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """List and manage detached jobs, which run in processes that survive their worker.

    list: waiting and running jobs, and their hosts. log: the output of a job, on the host where it
    ran. cancel: stop a job and the processes it started. run ID: run a job in the foreground. run
    FILE: enqueue a job that runs this file, by its absolute path, below a folder that the app names
    in app.file_task(...).

    Example: penstock detached log 0190a6c4-5e1f-7000-8000-00000a1b2000 --follow
    """
    from penstock.cli.store_choice import open_actions
    from penstock.enqueue.ids import parse_id

    if (act is DetachedCommand.LIST) is not (id is None):
        raise Refused("list takes no id; log, cancel and run need one: penstock detached log ID")
    file = act is DetachedCommand.RUN and bool(re.search(r"/|\.py$", id or ""))
    if args and not file:
        raise Refused(f"{' '.join(args)}: only `run` with the path of a file takes arguments")
    if file:
        _run_file(id or "", args or [], *store, json=json)
        return
    if act is DetachedCommand.RUN:
        raise typer.Exit(_run(parse_id(id or ""), *store))
    with open_actions(store, person()) as (broker, actions):
        if act is DetachedCommand.LIST:
            _list(broker, _folder(*store), every=all, json=json)
        elif act is DetachedCommand.CANCEL:
            _cancel(broker, actions, parse_id(id or ""), reason, json=json)
        else:
            _log(broker, parse_id(id or ""), _folder(*store), follow=follow)


def _folder(url: str | None, profile: str | None, app: str | None) -> Path:
    from penstock.cli.store_choice import store_url
    from penstock.worker.detached.state_folder import state_folder

    return state_folder(store_url(url, profile, app).url)


def _list(broker: Broker, folder: Path, *, every: bool, json: bool) -> None:
    import rich.text

    from penstock.broker.filter import Filter
    from penstock.cli import output
    from penstock.job import DETACHED, ENDED, State
    from penstock.worker.detached.state_folder import StateFolder

    states = () if every else tuple(state for state in State if state not in ENDED)
    tags = {name: (value,) for name, value in DETACHED.items()}
    jobs = broker.find(Filter(tags=tags, state=states), limit=_MOST).jobs
    rows = {row.id: row for row in broker.workers()}
    now = broker.clock.now()
    ended = StateFolder(folder).ended()
    gone = {job.id for job in jobs if (job.id, job.attempt, job.worker) in ended}
    progress = {job.id: running_progress(broker, job) for job in jobs}
    if json:
        output.print_json_lines(
            _described(job, rows.get(job.worker or ""), job.id in gone, *progress[job.id])
            for job in jobs
        )
        return
    if not jobs:
        output.print_note(
            "there are no detached jobs"
            if every
            else "no detached job is waiting or running; --all shows those that have ended"
        )
        return
    made = output.ids_table("task", "progress")
    for job in jobs:
        status = _status(job, rows.get(job.worker or ""), progress[job.id][0], now)
        if job.id in gone and job.state is State.RUNNING:
            status += "; its process has ended, and the next worker resumes it"
        task = rich.text.Text(job.task)
        made.add_row(job.id, output.state_text(job.state), task, rich.text.Text(status))
    output.console().print(made)
    for job in jobs:
        for sentence in progress_sentences(*progress[job.id]):
            output.print_note(f"{job.id}: {sentence}")
    if len(jobs) == _MOST:
        output.print_note(
            f"the newest {_MOST}; for more: penstock find --detached --after {jobs[-1].id}"
        )


def _status(job: Job[Any], row: WorkerRow | None, progress: Progress | None, now: float) -> str:
    from penstock.job import State
    from penstock.operate.time_text import relative_time

    if job.state is not State.RUNNING:
        tried = f", {job.attempt} attempts" if job.attempt > 1 else ""
        since = "enqueued" if job.ended_at is None else "ended"
        return f"{since} {relative_time(job.ended_at or job.enqueued_at, now)}{tried}"
    where = f"{row.host}, process {row.pid}" if row else "a worker that is gone"
    held = "" if row and row.alive else ", lease expired"
    done = f", {progress.fraction:.0%} done" if progress else ""
    began = relative_time(job.claimed_at, now)
    return f"attempt {job.attempt}, began {began} on {where}{held}{done}"


def running_progress(broker: Broker, job: Job[Any]) -> tuple[Progress | None, Application | None]:
    """The progress that a running job reported, and its Spark application, if it has one."""
    import msgspec

    from penstock.job import State
    from penstock.run.job_notes import Progress

    if job.state is not State.RUNNING:
        return None, None
    notes = broker.notes(job.id, "progress")
    progress = msgspec.json.decode(notes[-1].value, type=Progress) if notes else None
    if not broker.notes(job.id, "application"):
        return progress, None
    from penstock.spark.application import last_application

    return progress, last_application(broker, job.id)


def progress_json(progress: Progress | None, application: Application | None) -> dict[str, Any]:
    """The same as JSON."""
    import msgspec

    return {
        "progress": progress and {"fraction": progress.fraction, "note": progress.note},
        "application": application and msgspec.to_builtins(application),
    }


def progress_sentences(progress: Progress | None, application: Application | None) -> list[str]:
    """The same as sentences."""
    sentences: list[str] = []
    if progress is not None:
        sentences.append(f"{progress.fraction:.0%} done{progress.note and f': {progress.note}'}")
    if application is not None:
        sentences.append(f"attempt {application.attempt} is the Spark application {application}")
    return sentences


def _described(
    job: Job[Any],
    row: WorkerRow | None,
    gone: bool,
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
        "locked": bool(row and row.alive and not gone),
        "attempt": job.attempt,
        "failures": job.failures,
        "lapses": job.lapses,
        "enqueued_at": to_json.iso(job.enqueued_at or None),
        "claimed_at": to_json.iso(job.claimed_at),
        "ended_at": to_json.iso(job.ended_at),
        **progress_json(progress, application),
    }


def _cancel(broker: Broker, actions: Actions, id: str, reason: str, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate.sentences import left_unchanged_text

    cancelled = bool(actions.act("cancel", [id], reason).done)
    if json:
        output.print_json({"id": id, "cancelled": cancelled})
    elif cancelled:
        output.print_text(
            f"job {id} was asked to stop; what has not ended after its worker's grace is killed"
        )
    else:
        output.print_text(left_unchanged_text(id, broker.why(id).sentence))
    if not cancelled:
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
            job = broker.get(id)  # before reading: the end of an ended job is read, too
            if os.fstat(log).st_size < lines.tell():  # the log was cut to its maximal size
                lines.seek(0, 2)
            while part := lines.read(1 << 16):
                write(part)
            sys.stdout.flush()
            if not follow or job is None or job.state in ENDED:
                return
            time.sleep(_FOLLOW_SECONDS)


def _writer() -> Callable[[bytes], object]:
    """Writes a log to stdout: raw bytes, but without control characters to a terminal."""
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
        return f"there is no job {id}: `penstock find --detached` lists detached jobs"
    if not DETACHED.items() <= job.tags.items():
        return f"job {id} of {job.task} is not detached: its output is in its worker's log"
    if job.attempt == 0:
        return f"job {id} has not started, so it has no log: `penstock why {id}` says why"
    row = next((row for row in broker.workers() if row.id == job.worker), None)
    where = f"it runs on {row.host}" if row else "it ran on another host"
    return f"there is no log of job {id} in {folder}: {where}, or with another PENSTOCK_STATE"


def _run(id: str, url: str | None, profile: str | None, app: str | None) -> int:
    from penstock.cli.store_choice import (
        check_app_url,
        import_app,
        target_or_default,
        use_store,
    )
    from penstock.worker.detached.run_manually import run_manually

    app = target_or_default(app, f"run needs the app: penstock detached run {id} --app myapp:app")
    with use_store(url, profile):
        loaded = check_app_url(import_app(app), url)
        try:
            return run_manually(loaded, app, id)
        finally:
            loaded.close()


def _run_file(
    file: str,
    words: list[str],
    url: str | None,
    profile: str | None,
    app: str | None,
    *,
    json: bool,
) -> None:
    from penstock.cli import output
    from penstock.cli.call_arguments import parse_words
    from penstock.cli.store_choice import check_app_url, import_app, target_or_default, use_store
    from penstock.task.file_task import FileTask, is_below

    app = target_or_default(app, f"run needs the app: penstock detached run {file} --app myapp:app")
    with use_store(url, profile):
        loaded = check_app_url(import_app(app), url)
        try:
            tasks = [task for task in loaded.tasks.values() if isinstance(task, FileTask)]
            if not tasks:
                raise Refused(
                    f"{app} runs no files: name the folder whose files it may run, as "
                    'app.file_task("/srv/etl")'
                )
            task = next((task for task in tasks if is_below(file, task.folders)), tasks[0])
            positional, keywords = parse_words(task, words)
            if positional:
                raise Refused(f"{words[0]!r}: write arguments of the file as name=value")
            handle = task.enqueue(file, **keywords)
            if json:
                output.print_json({"id": handle.id, "task": task.name, "file": file})
            else:
                output.print_text(
                    f"job {handle.id} runs {file} when a worker that has {task.name} claims it: "
                    f"`penstock detached log {handle.id} --follow` shows its output"
                )
        finally:
            loaded.close()
