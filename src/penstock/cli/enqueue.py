"""run (enqueue a job, follow it, print its result) and enqueue."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.options import Json, Reason, Store, person, reject_unknown_options, with_options
from penstock.errors import JobCancelled, JobFailed, MissingRight, Refused, ResultGone
from penstock.operate.parse_input import parse_datetime, parse_duration, parse_pairs
from penstock.run.error_text import traceback_in

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.broker.values import Batch
    from penstock.broker.views import WorkerRow
    from penstock.enqueue.handle import Handle
    from penstock.job import Job
    from penstock.operate.actions import Actions
    from penstock.task.options import Prepared
    from penstock.task.task import Task
    from penstock.worker import Worker

TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="The task, as module:function.", show_default=False)
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS",
        help="Arguments; name=value for keywords. A word that is JSON is read as JSON.",
        show_default=False,
    ),
]


@with_options
def run(
    task: TaskName,
    args: Arguments = None,
    *,
    timeout: Annotated[
        str | None,
        typer.Option(help="Stop waiting after this time, such as 30s; the job continues."),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Enqueue a job, wait for it, and print its result.

    If no live worker knows the task, this process runs it.

    Example: penstock run tasks:add 2 3
    """
    from penstock.cli import output
    from penstock.cli.call_arguments import find_task, parse_words
    from penstock.cli.store_choice import print_store, use_store

    seconds = None if timeout is None else parse_duration(timeout, "--timeout")
    with use_store(store.url, store.profile):
        [name, *words] = reject_unknown_options([task, *(args or [])])
        found = find_task(name, store.app, store.url)
        owner = found.app
        if store.url is None:
            print_store(owner.resolved_url)
        positional, keywords = parse_words(found, words)
        local_worker = _LocalWorker(found, quiet=json)
        try:
            handle = found.enqueue(*positional, **keywords)
            local_worker.followed = handle.id
            _follow(owner.broker, handle, local_worker, seconds, json=json)
        except KeyboardInterrupt:
            output.print_note("the job stays stored, and runs when a worker claims it", "yellow")
            local_worker.close(now=True)
            raise
        finally:
            local_worker.close()
            owner.close()


class _LocalWorker:
    """A worker in this process, started if no live worker knows the task."""

    def __init__(self, task: Task[..., Any], *, quiet: bool) -> None:
        self.followed: str | None = None  # the job whose failure is printed here, not in the log
        self._task = task
        self._quiet = quiet
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self._denied: MissingRight | None = None
        self._warned = False

    def start_if_needed(self) -> None:
        """Start unless a live worker knows the task; called again, since its lease may expire."""
        task = self._task
        if self._denied is not None:
            raise self._denied
        if self._worker is not None or task.declared:
            return
        from penstock.app.environment import open_to_run
        from penstock.cli import output

        rows = task.app.broker.workers()
        if not self._warned:
            self._warned = True
            for warning in _other_places(rows, task):
                output.print_note(f"warning: {warning}", "yellow")
        if any(_knows(row, task) for row in rows):
            return
        from penstock.worker import Worker

        open_to_run(task.app)
        if not self._quiet:
            output.print_note(
                f"no live worker knows {task.name}: this process serves the queue {task.queue}"
            )
        self._worker = Worker(
            task.app,
            queues=(task.queue,),
            threads=1,
            grace=5,
            tags=task.runs_on,
            detached="here" if task.detached else "leave",
        )
        logging.getLogger("penstock.worker").addFilter(self._is_new)
        self._thread = threading.Thread(
            target=self._work, args=[self._worker], name="penstock-worker"
        )
        self._thread.start()

    def _work(self, worker: Worker) -> None:
        try:
            worker.work()
        except MissingRight as error:
            self._denied = error

    def close(self, *, now: bool = False) -> None:
        worker, thread, self._worker = self._worker, self._thread, None
        if worker is not None and thread is not None:
            worker.stop(now=now)
            thread.join()
            logging.getLogger("penstock.worker").removeFilter(self._is_new)
            if self._denied is not None:
                return
            # Else other workers would wait for this one until its lease expires.
            self._task.app.broker.recover(dead=worker.id, started=())

    def _is_new(self, record: logging.LogRecord) -> bool:
        """Whether a line says what is not printed at the end of the followed job anyway."""
        if getattr(record, "job_id", "") != self.followed:
            return True
        record.exc_text = None  # of an attempt before the last: its headline is enough
        return record.levelno < logging.ERROR


def _knows(row: Any, task: Task[..., Any]) -> bool:
    return bool(
        row.alive
        and row.app == task.app_name
        and row.tasks.get(task.name, 0) >= task.version
        and (row.queues is None or task.queue in row.queues)
        and row.tags.issuperset(task.runs_on)
    )


def _other_places(rows: Sequence[WorkerRow], task: Task[..., Any]) -> list[str]:
    """Of live workers which have another function under this name, and may run the job with it."""
    from penstock.broker.views import WorkerRow
    from penstock.operate.task_places import REMEDY, defined_twice

    app = task.app
    own = WorkerRow(
        id="this process",
        app=app.name,
        tasks={task.name: task.version},
        places=app.task_places,
        started_at=app.broker.clock.now(),
    )
    found = defined_twice([*rows, own])
    return [f"{each}; {REMEDY}" for each in found if (each.app, each.task) == (app.name, task.name)]


def _follow(
    broker: Broker,
    handle: Handle[Any],
    local_worker: _LocalWorker,
    timeout: float | None,
    *,
    json: bool,
) -> None:
    """Show the progress of the job until it has ended, then its result or error."""
    from penstock.cli import output
    from penstock.operate import to_json

    progress_line = output.ProgressLine(quiet=json)
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        local_worker.start_if_needed()
        try:
            left = 0.25 if until is None else min(0.25, max(until - time.monotonic(), 0))
            result = handle.result(timeout=left)
        except TimeoutError:
            if until is not None and time.monotonic() >= until:
                progress_line.clear()
                raise Refused(
                    f"job {handle.id} has not ended within {timeout:g} s, and continues: "
                    f"{broker.why(handle.id).sentence}"
                ) from None
            progress_line.show(_progress_text(broker, handle))
            continue
        except (JobFailed, JobCancelled, ResultGone) as error:
            progress_line.clear()
            _print_end(broker.get(handle.id), error, json=json)
            raise typer.Exit(1) from error
        progress_line.clear()
        job = broker.get(handle.id)
        if json:
            output.print_json(to_json.job_json(job) if job is not None else {"id": handle.id})
        elif isinstance(result, str):
            output.print_text(result)
        elif result is not None:
            output.print_text(output.one_line(job.result if job is not None else None, result))
        return


def _print_end(job: Job[Any] | None, error: Exception, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json

    if json and job is not None:
        output.print_json(to_json.job_json(job))
        return
    if isinstance(error, JobFailed) and (traceback := traceback_in(error.remote_traceback)):
        output.print_note(traceback.rstrip(), "")
    output.print_error(str(error))


def _progress_text(broker: Broker, handle: Handle[Any]) -> str:
    progress = handle.progress()
    if progress is not None:
        return f"{progress.fraction:>4.0%} {progress.note}"
    return broker.why(handle.id).sentence


@with_options
def enqueue(
    task: TaskName,
    args: Arguments = None,
    *,
    delay: Annotated[str | None, typer.Option(help="Run after this time: 90s, 5m, 2h.")] = None,
    at: Annotated[str | None, typer.Option(help="Run at this time: 2026-11-15T08:00Z.")] = None,
    priority: Annotated[int | None, typer.Option(help="-100 to 100; higher first.")] = None,
    key: Annotated[
        str | None, typer.Option(help="The job's key: find, limit and order by it.")
    ] = None,
    unique: Annotated[
        str | None, typer.Option(help="Unique key: while a job holds it, no second one is stored.")
    ] = None,
    unique_until: Annotated[
        str, typer.Option(help="ended, started or time: until when the job holds its unique key.")
    ] = "ended",
    unique_for: Annotated[
        str | None, typer.Option(help="The longest time it holds its unique key: 90s, 5m, 2h.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Take the place of the job under --unique, if it was not claimed."
        ),
    ] = False,
    queue: Annotated[str | None, typer.Option(help="Use this queue instead of the task's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="name=value; may be repeated.")] = None,
    many: Annotated[
        Path | None,
        typer.Option(
            help="Enqueue one job per line of this file of JSON lines: [arguments] or {keywords}."
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="The job's id: a repeated call stores it once. With --many: any name.",
        ),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Enqueue a job, or with --many one job per line of a file.

    Example: penstock enqueue mail:send ada@example.org --delay 5m --tag tenant=a
    """
    from penstock.cli.call_arguments import find_task, parse_words
    from penstock.cli.store_choice import print_store, use_store
    from penstock.operate.actions import Actions

    with use_store(store.url, store.profile):
        [name, *words] = reject_unknown_options([task, *(args or [])])
        found = find_task(name, store.app, store.url)
        if store.url is None:
            print_store(found.app.resolved_url)
        prepared = found.options(
            delay=None if delay is None else parse_duration(delay, "--delay"),
            at=None if at is None else parse_datetime(at, "--at"),
            priority=priority,
            key=key,
            unique=unique,
            unique_until=cast("Any", unique_until),  # checked by options()
            unique_for=None if unique_for is None else parse_duration(unique_for, "--unique-for"),
            replace=replace,
            queue=queue,
            tags=parse_pairs(tag, "--tag"),
        )
        try:
            if many is not None:
                if words:
                    raise Refused("--many reads the arguments from its file: leave out the others")
                batch = _store_many(found, prepared, many, id, json=json)
                data = {"task": found.name, "queue": found.queue, "jobs": batch.count}
                if reason:
                    actions = Actions(found.app.broker, person())
                    actions.record_enqueue(reason, {**data, "batch": batch.id})
            else:
                positional, keywords = parse_words(found, words)
                job = prepared.job(*positional, **keywords)
                actions = Actions(found.app.broker, person())
                _store_one(actions, job, id, reason, json=json)
        finally:
            found.app.close()


def _store_one(actions: Actions, job: Job[Any], id: str | None, reason: str, *, json: bool) -> None:
    """Store the job and print its id."""
    from penstock.cli import output

    # Only with a reason: a script that enqueues all day should not fill the audit.
    stored = actions.enqueue(job, id, reason, on_record=bool(reason))
    broker = job.owner.broker
    if json:
        kept = broker.get(stored.id)
        state = None if kept is None else kept.state
        output.print_json({"id": stored.id, "stored": stored.new, "task": job.task, "state": state})
        return
    output.print_text(stored.id)
    if stored.duplicate:
        output.print_note("not stored: this job already holds the unique key", "yellow")
    elif not stored.new:
        why = broker.why(stored.id).sentence
        output.print_note(f"already stored, nothing was changed. {why}", "yellow")


def _store_many(
    task: Task[..., Any], prepared: Prepared[..., Any], file: Path, id: str | None, *, json: bool
) -> Batch:
    from penstock.cli import output
    from penstock.cli.call_arguments import parse_rows

    if not file.is_file():
        raise Refused(f"--many {file}: there is no such file")
    progress_line = output.ProgressLine(quiet=json)

    def rows() -> Generator[Any]:
        for number, row in enumerate(parse_rows(task, file), 1):
            if number % 1000 == 0:
                progress_line.show(f"{number:,} rows read")
            yield row

    batch = prepared.enqueue_many(rows(), id=id)
    progress_line.clear()
    if json:
        output.print_json({"batch": batch.id or None, "count": batch.count, "task": task.name})
    else:
        under = f" under {batch.id}" if batch.id else ""
        output.print_text(f"{batch.count:,} jobs of {task.name} are stored{under}")
    return batch
