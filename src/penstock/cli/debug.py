"""penstock debug: a job of yesterday, run here under a debugger; the store is only read."""

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
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Open the debugger where the function raises.")
    ] = False,
    break_: Annotated[
        bool, typer.Option("--break", help="Stop at the first line of the function.")
    ] = False,
    store: Store,
    json: Json = False,
) -> None:
    """Run a job once more, here, with what was stored of it; the store is not written to.

    With its arguments, its last snapshot and its steps. What it would have written is shown. What
    it does elsewhere is real: what it sends is sent.

    Example: penstock debug 0190a6c4-5e1f-7000-8000-00000a1b2000 --app myapp:app --pdb
    """
    import logging

    from penstock.brokers import open_broker
    from penstock.cli import output
    from penstock.cli.store_choice import checked, chosen, load, say_where, store_url
    from penstock.enqueue.ids import parse_id
    from penstock.run.debug import hidden_arguments, job_to_debug, run_here

    job_id = parse_id(id)
    # Whoever stored the job chose the name of its task: that is looked up, and never imported.
    if store.app is None:
        raise Refused(
            "debug runs code, and a stored job does not say which: name it with --app, for example "
            f"penstock debug {job_id} --app myapp:app"
        )
    withheld: list[Withheld] = []

    def tell(each: Withheld) -> None:
        withheld.append(each)
        if not json:
            output.aside(each.says, "cyan")

    resolved = store_url(*store)
    if resolved.url.startswith("memory:"):
        raise Refused("a memory: store is inside the process that made it: nobody else can look")
    if store.url is None:
        say_where(resolved)
    broker = open_broker(resolved.url, create=False)
    try:
        with chosen(store.url, store.profile):
            job = job_to_debug(broker, job_id)
            task = _task_of(checked(load(store.app), store.url), job.task)
            if not json:
                _introduce(job, hidden_arguments(job))
            logging.basicConfig(level="INFO", format="%(levelname)-7s %(message)s")
            # The result alone goes to stdout where programs read it.
            with redirect_stdout(sys.stderr if json else sys.stdout):
                ended = run_here(
                    task.app, broker, task, job, tell, post_mortem=pdb, stop_first=break_
                )
    finally:
        broker.close()
    if json:
        output.put_json(_json(job, ended, withheld))
    else:
        _put_end(ended)
    if not ended.returned:
        raise typer.Exit(1)


def _task_of(app: App, name: str) -> Task[..., Any]:
    """The task of a stored name, if this app has its code; a name is looked up, not imported."""
    from penstock.operate.actions import task_of

    task = task_of(app, name)
    if task.declared:
        raise Refused(
            f"task {task.name} is only declared in this app, its code lives elsewhere: "
            "name the app that has it with --app"
        )
    return task


def _introduce(job: Job[Any], hidden: list[str]) -> None:
    from penstock.cli import output
    from penstock.operate import to_json

    output.aside(
        f"{job.task}({to_json.call_text(job.body)}), {job.state}, as attempt {job.attempt}; "
        "the store is not written to"
    )
    for name in hidden:
        output.aside(f"argument {name} is a secret and was not kept: it is *** here", "yellow")


def _put_end(ended: Debugged) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.why import span

    outcome = ended.outcome
    if ended.left:
        output.complain("left by the debugger; nothing was stored")
        return
    if outcome.error:
        output.aside(outcome.error.rstrip(), "")
    if ended.returned:
        again = " and would have run again" if outcome.reason == "repeat" else ""
        output.aside(f"returned{again}:", "green")
        result = None if outcome.result is None else to_json.decoded(outcome.result)
        output.say(result if isinstance(result, str) else output.one_line(outcome.result, result))
        return
    after = (
        "" if outcome.run_at is None else f" in {span(max(outcome.run_at - _ended_at(ended), 0))}"
    )
    how = f"been ready again{after}" if outcome.state == "ready" else f"ended as {outcome.state}"
    output.complain(f"would have {how}: {outcome.reason or 'error'}")


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
