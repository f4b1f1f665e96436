"""Hand over: run (enqueue, follow, print the result) and enqueue."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.options import Json, Reason, Store, no_stray_options, person, with_options
from penstock.errors import JobCancelled, JobFailed, Refused, ResultGone
from penstock.operate.typed_values import moment_of, pairs_of, span_of

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.broker.values import Batch
    from penstock.enqueue.handle import Handle
    from penstock.job import Job
    from penstock.operate.actions import Actions
    from penstock.task.options import Prepared
    from penstock.task.task import Task
    from penstock.worker import Worker

TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="module:function.", show_default=False)
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS",
        help="Arguments: JSON where it is JSON, else text; name=value for keywords.",
        show_default=False,
    ),
]


@with_options
def run(
    task: TaskName,
    args: Arguments = None,
    *,
    timeout: Annotated[
        str | None, typer.Option(help="Stop waiting after so long; the job goes on.")
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Run a task as a job: enqueue it, follow it, print its result.

    If no live worker knows the task, this process works on it.

    Example: penstock run tasks:add 2 3
    """
    from penstock.cli import output
    from penstock.cli.call_arguments import find_task, parse_words
    from penstock.cli.store_choice import chosen, say_where

    patience = None if timeout is None else span_of(timeout, "--timeout")
    with chosen(store.url, store.profile):
        [name, *words] = no_stray_options([task, *(args or [])])
        found = find_task(name, store.app, store.url)
        owner = found.app
        if store.url is None:
            say_where(owner.resolved_url)
        positional, keywords = parse_words(found, words)
        stand_in = _StandIn(found, quiet=json)
        try:
            handle = found.enqueue(*positional, **keywords)
            stand_in.followed = handle.id
            _follow(owner.broker, handle, stand_in, patience, json=json)
        except KeyboardInterrupt:
            output.aside("the job is stored, and goes on as soon as a worker has it", "yellow")
            stand_in.close(now=True)
            raise
        finally:
            stand_in.close()
            owner.close()


class _StandIn:
    """Works in this process from the moment that no live worker knows the task, until closed."""

    def __init__(self, task: Task[..., Any], *, quiet: bool) -> None:
        self.followed: str | None = None  # the job whose end is told here, and not in the log
        self._task = task
        self._quiet = quiet
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Start working if nobody else does: a worker that died is believed in for a lease."""
        task = self._task
        if self._worker is not None or task.declared:
            return
        if any(_knows(row, task) for row in task.app.broker.workers()):
            return
        from penstock.cli import output
        from penstock.worker import Worker

        if not self._quiet:
            output.aside(
                f"no live worker knows {task.name}: this process works on queue {task.queue}"
            )
        self._worker = Worker(
            task.app,
            queues=(task.queue,),
            threads=1,
            grace=5,
            tags=task.runs_on,
            detached="here" if task.detached else "leave",
        )
        logging.getLogger("penstock.worker").addFilter(self._is_news)
        self._thread = threading.Thread(target=self._worker.work, name="penstock-worker")
        self._thread.start()

    def close(self, *, now: bool = False) -> None:
        worker, thread, self._worker = self._worker, self._thread, None
        if worker is not None and thread is not None:
            worker.stop(now=now)
            thread.join()
            logging.getLogger("penstock.worker").removeFilter(self._is_news)
            # Nobody must wait for this worker until its lease is over.
            self._task.app.broker.recover(dead=worker.id, started=())

    def _is_news(self, record: logging.LogRecord) -> bool:
        its_end = record.levelno >= logging.ERROR and getattr(record, "job_id", "") == self.followed
        return not its_end


def _knows(row: Any, task: Task[..., Any]) -> bool:
    return bool(
        row.alive
        and row.app == task.app_name
        and row.tasks.get(task.name, 0) >= task.version
        and (row.queues is None or task.queue in row.queues)
        and row.tags.issuperset(task.runs_on)
    )


def _follow(
    broker: Broker,
    handle: Handle[Any],
    stand_in: _StandIn,
    patience: float | None,
    *,
    json: bool,
) -> None:
    """Show how far the job is until it has ended, then what became of it."""
    from penstock.cli import output
    from penstock.operate import to_json

    ticker = output.Ticker(quiet=json)
    until = None if patience is None else time.monotonic() + patience
    while True:
        stand_in.look()
        try:
            left = 0.25 if until is None else min(0.25, max(until - time.monotonic(), 0))
            result = handle.result(timeout=left)
        except TimeoutError:
            if until is not None and time.monotonic() >= until:
                ticker.done()
                raise Refused(
                    f"job {handle.id} has not ended within {patience:g} s, and goes on: "
                    f"{broker.why(handle.id).sentence}"
                ) from None
            ticker.say(_how_far(broker, handle))
            continue
        except (JobFailed, JobCancelled, ResultGone) as error:
            ticker.done()
            _put_end(broker.get(handle.id), error, json=json)
            raise typer.Exit(1) from error
        ticker.done()
        job = broker.get(handle.id)
        if json:
            output.put_json(to_json.job_json(job) if job is not None else {"id": handle.id})
        elif isinstance(result, str):
            output.say(result)
        elif result is not None:
            output.say(output.one_line(job.result if job is not None else None, result))
        return


def _put_end(job: Job[Any] | None, error: Exception, *, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json

    if json and job is not None:
        output.put_json(to_json.job_json(job))
        return
    if isinstance(error, JobFailed) and error.remote_traceback:
        output.aside(error.remote_traceback.rstrip(), "")
    output.complain(str(error))


def _how_far(broker: Broker, handle: Handle[Any]) -> str:
    progress = handle.progress()
    if progress is not None:
        return f"{progress.fraction:>4.0%} {progress.note}"
    return broker.why(handle.id).sentence


@with_options
def enqueue(
    task: TaskName,
    args: Arguments = None,
    *,
    delay: Annotated[str | None, typer.Option(help="Run after so long: 90s, 5m, 2h.")] = None,
    at: Annotated[str | None, typer.Option(help="Run then: 2026-11-15T08:00Z.")] = None,
    priority: Annotated[int | None, typer.Option(help="-100 to 100, higher first.")] = None,
    key: Annotated[str | None, typer.Option(help="What the job is about.")] = None,
    unique: Annotated[
        str | None, typer.Option(help="While a job under this key stands, store no second one.")
    ] = None,
    unique_until: Annotated[
        str, typer.Option(help="It stands until it has ended or started, or for a time.")
    ] = "ended",
    unique_for: Annotated[
        str | None, typer.Option(help="It stands no longer than this: 90s, 5m, 2h.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue than the task's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="name=value; may be repeated.")] = None,
    many: Annotated[
        Path | None,
        typer.Option(help="A file of JSON lines, one job each: [arguments] or {keywords}."),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", help="Its id: sent again it is stored once. With --many: any name."),
    ] = None,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Store a job, or with --many one per line of a file; a worker will run it.

    Example: penstock enqueue mail:send ada@example.org --delay 5m --tag tenant=a
    """
    from penstock.cli.call_arguments import find_task, parse_words
    from penstock.cli.store_choice import chosen, say_where
    from penstock.operate.actions import Actions

    with chosen(store.url, store.profile):
        [name, *words] = no_stray_options([task, *(args or [])])
        found = find_task(name, store.app, store.url)
        if store.url is None:
            say_where(found.app.resolved_url)
        prepared = found.options(
            delay=None if delay is None else span_of(delay, "--delay"),
            at=None if at is None else moment_of(at, "--at"),
            priority=priority,
            key=key,
            unique=unique,
            unique_until=cast("Any", unique_until),  # what is none of the three is refused there
            unique_for=None if unique_for is None else span_of(unique_for, "--unique-for"),
            queue=queue,
            tags=pairs_of(tag, "--tag"),
        )
        try:
            if many is not None:
                if words:
                    raise Refused("--many takes the arguments from its file: leave out the others")
                batch = _store_many(found, prepared, many, id, json=json)
                said = {"task": found.name, "queue": found.queue, "jobs": batch.count}
                if reason:
                    actions = Actions(found.app.broker, person())
                    actions.record_enqueue(reason, {**said, "batch": batch.id})
            else:
                positional, keywords = parse_words(found, words)
                job = prepared.job(*positional, **keywords)
                actions = Actions(found.app.broker, person())
                _store(actions, job, id, reason, json=json)
        finally:
            found.app.close()


def _store(actions: Actions, job: Job[Any], id: str | None, reason: str, *, json: bool) -> None:
    """Store it, and say so."""
    from penstock.cli import output

    # Who gives a reason is in the audit; a script that enqueues all day is not.
    stored = actions.enqueue(job, id, reason, on_record=bool(reason))
    broker = job.owner.broker
    if json:
        kept = broker.get(stored.id)
        state = None if kept is None else kept.state
        output.put_json({"id": stored.id, "stored": stored.new, "task": job.task, "state": state})
        return
    output.say(stored.id)
    if stored.standing:
        output.aside("not stored: this job holds the unique key already", "yellow")
    elif not stored.new:
        why = broker.why(stored.id).sentence
        output.aside(f"stored before, and left as it is. {why}", "yellow")


def _store_many(
    task: Task[..., Any], prepared: Prepared[..., Any], file: Path, id: str | None, *, json: bool
) -> Batch:
    from penstock.cli import output
    from penstock.cli.call_arguments import parse_rows

    if not file.is_file():
        raise Refused(f"--many {file}: there is no such file")
    ticker = output.Ticker(quiet=json)

    def rows() -> Generator[Any]:
        for number, row in enumerate(parse_rows(task, file), 1):
            if number % 1000 == 0:
                ticker.say(f"{number:,} rows read")
            yield row

    batch = prepared.enqueue_many(rows(), id=id)
    ticker.done()
    if json:
        output.put_json({"batch": batch.id or None, "count": batch.count, "task": task.name})
    else:
        under = f" under {batch.id}" if batch.id else ""
        output.say(f"{batch.count:,} jobs of {task.name} are stored{under}")
    return batch
