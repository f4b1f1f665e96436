"""The root of the command line: order and groups of commands, errors, exit codes.

    0 done    1 the answer is no (a failed job, a red doctor)    2 refused    130 Ctrl-C

Help is plain text: rich's would cost 200 ms more at every start.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from penstock.cli import (
    bench_and_demo,
    dashboard,
    debug,
    detached,
    enqueue,
    find,
    flows,
    history,
    init_and_dev,
    job_actions,
    migrate_and_doctor,
    pipeline,
    rules,
    schedules,
    signals,
    spark_worker,
    top,
    verify,
    worker,
)
from penstock.cli.options import TAKES_WORDS
from penstock.errors import PenstockError, UnknownOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = "Start here"
HOLD_BACK = "Pause, block, limit"
JOBS = "Jobs"
LOOK = "Inspect"
STORE = "The store"
SPARK = "On Spark"
SEE = "See it work"


class Root(TyperGroup):
    """All commands, in groups; a PenstockError is printed as one sentence, with exit code 2."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        groups: dict[str, list[tuple[str, str]]] = {}
        widest = max(len(name) for name in self.commands)
        for name, command in self.commands.items():
            group = str(getattr(command, "rich_help_panel", FIRST))
            row = (name.ljust(widest), command.get_short_help_str(formatter.width - widest - 6))
            groups.setdefault(group, []).append(row)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except PenstockError as error:
            from penstock.cli.output import print_error

            print_error(_sentence(error))
            sys.exit(2)


def _sentence(error: PenstockError) -> str:
    text = str(error)
    if isinstance(error, UnknownOutcome):
        ids = ", ".join(str(getattr(job, "id", job)) for job in error.jobs[:3])
        text += f". It is safe to send again under the same id: --id {ids}"
    return text


def _version(wanted: bool) -> None:
    if wanted:
        from penstock.app.version import release

        typer.echo(f"penstock {release()}")
        raise typer.Exit


root = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@root.callback()
def penstock(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Durable background work for Python.

    First job: penstock init && penstock run tasks:add 2 3
    """
    del version


def _add(group: str, function: Callable[..., Any], *, words: bool = False) -> None:
    name = function.__name__.rstrip("_").replace("_", "-")
    settings = TAKES_WORDS if words else None
    root.command(name, rich_help_panel=group, context_settings=settings)(function)


_add(FIRST, init_and_dev.init)
_add(FIRST, init_and_dev.dev)
_add(FIRST, worker.worker)
_add(FIRST, enqueue.run, words=True)
_add(FIRST, enqueue.enqueue, words=True)
_add(FIRST, find.find, words=True)
_add(FIRST, find.why)
_add(HOLD_BACK, rules.pause)
_add(HOLD_BACK, rules.resume)
_add(HOLD_BACK, rules.block)
_add(HOLD_BACK, rules.unblock)
_add(HOLD_BACK, rules.limit)
_add(HOLD_BACK, rules.order)
_add(JOBS, job_actions.cancel, words=True)
_add(JOBS, job_actions.retry, words=True)
_add(JOBS, job_actions.copy)
_add(JOBS, job_actions.delete, words=True)
_add(JOBS, signals.signal, words=True)
_add(JOBS, detached.detached)
_add(JOBS, debug.debug)
_add(LOOK, dashboard.dashboard)
_add(LOOK, top.top)
_add(LOOK, find.count)
_add(LOOK, history.history)
_add(LOOK, schedules.schedules)
_add(LOOK, flows.flow)
_add(STORE, migrate_and_doctor.migrate)
_add(STORE, migrate_and_doctor.doctor)
_add(STORE, verify.verify)
_add(SPARK, spark_worker.spark_worker)
_add(SPARK, pipeline.pipeline)
_add(SEE, bench_and_demo.bench)
_add(SEE, bench_and_demo.demo)
