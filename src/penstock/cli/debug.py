"""debug: run a stored job here, under a debugger; the store is only read."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, Store, with_options
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.job import Job
    from penstock.run.debug import Debugged
    from penstock.run.dry_run import Withheld
    from penstock.task.task import Task


@with_options
def debug(
    id: Annotated[str, typer.Argument(metavar="ID", help="A job's id.", show_default=False)],
    *,
    pdb: Annotated[bool, typer.Option("--pdb", help="Open pdb where the function raises.")] = False,
    break_: Annotated[
        bool, typer.Option("--break", help="Open pdb at the first line of the function.")
    ] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Run a stored job again in this process, without writing to the store.

    It gets its arguments, its last snapshot and its steps; what it would have written is printed.
    Effects elsewhere are real: mail that it sends is sent.

    Example: penstock debug 0190a6c4-5e1f-7000-8000-00000a1b2000 --app myapp:app --pdb
    """
    import logging

    from penstock.cli import output
    from penstock.cli.store_choice import (
        check_app_url,
        import_app,
        open_store,
        target_or_default,
        use_store,
    )
    from penstock.enqueue.ids import parse_id
    from penstock.run.debug import hidden_arguments, job_to_debug, run_here

    job_id = parse_id(id)
    # The task's name comes from the store: it is looked up in the app, never imported.
    needs = (
        "debug needs the app that has the job's code: name it with --app, for example "
        f"penstock debug {job_id} --app myapp:app"
    )
    store = store._replace(app=target_or_default(store.app, needs))
    withheld: list[Withheld] = []

    def tell(write: Withheld) -> None:
        withheld.append(write)
        if not json:
            output.print_note(write.says, "cyan")

    with open_store(*store) as broker, use_store(store.url, store.profile):
        job = job_to_debug(broker, job_id)
        task = _task_of(check_app_url(import_app(store.app or ""), store.url), job.task)
        if not json:
            _introduce(job, hidden_arguments(job))
        logging.basicConfig(level="INFO", format="%(levelname)-7s %(message)s")
        # With --json only the result goes to stdout.
        with redirect_stdout(sys.stderr if json else sys.stdout):
            ended = run_here(task.app, broker, task, job, tell, post_mortem=pdb, stop_first=break_)
    if json:
        output.print_json(_json(job, ended, withheld))
    else:
        _put_end(ended)
    if not ended.returned:
        raise typer.Exit(1)


def _task_of(app: App, name: str) -> Task[..., Any]:
    """The task of this name, if the app has its code."""
    from penstock.operate.actions import task_of

    task = task_of(app, name)
    if task.declared:
        raise Refused(
            f"task {task.name} is only declared in this app: name the app with its code with --app"
        )
    return task


def _introduce(job: Job[Any], hidden: list[str]) -> None:
    from penstock.cli import output
    from penstock.operate import to_json

    output.print_note(
        f"{job.task}({to_json.call_text(job.body)}), {job.state}, as attempt {job.attempt}; "
        "the store is not written to"
    )
    for name in hidden:
        output.print_note(f"argument {name} is a secret: the function gets ***", "yellow")


def _put_end(ended: Debugged) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.time_text import duration_text

    outcome = ended.outcome
    if ended.left:
        output.print_error("the debugger was quit; nothing was stored")
        return
    if outcome.error:
        output.print_note(outcome.error.rstrip(), "")
    if ended.returned:
        again = " and would have run again" if outcome.reason == "repeat" else ""
        output.print_note(f"returned{again}:", "green")
        result = None if outcome.result is None else to_json.decoded(outcome.result)
        output.print_text(
            result if isinstance(result, str) else output.one_line(outcome.result, result)
        )
        return
    after = (
        ""
        if outcome.run_at is None
        else f" in {duration_text(max(outcome.run_at - _ended_at(ended), 0))}"
    )
    how = f"been ready again{after}" if outcome.state == "ready" else f"ended as {outcome.state}"
    if outcome.state == "waiting":
        how = "waited and run again when these have ended"
    output.print_error(f"would have {how}: {outcome.reason or 'error'}")


def _ended_at(ended: Debugged) -> float:
    return ended.outcome.ended_at or 0.0


def _json(job: Job[Any], ended: Debugged, withheld: list[Withheld]) -> dict[str, Any]:
    from penstock.operate import to_json

    outcome = ended.outcome
    return {
        "id": job.id,
        "task": job.task,
        "attempt": job.attempt,
        "returned": ended.returned,
        "left": ended.left,
        "state": outcome.state,
        "reason": outcome.reason,
        "result": to_json.decoded(outcome.result),
        "error": outcome.error,
        "withheld": withheld,
    }
