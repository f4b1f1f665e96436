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
    adopt,
    alerts,
    attach,
    bench_and_demo,
    dashboard,
    debug,
    detached,
    enqueue,
    export_and_import,
    find,
    flows,
    history,
    init_and_dev,
    inspect_store,
    job_actions,
    manager,
    migrate_and_doctor,
    pipeline,
    queue,
    rule_list,
    rules,
    schedules,
    shards,
    show,
    signals,
    spark_package,
    spark_worker,
    top,
    topics,
    verify,
    worker,
    workers,
)
from penstock.cli.options import TAKES_WORDS
from penstock.cli.quick_command import QuickCommand, take_as_typed
from penstock.errors import PenstockError, UnknownOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE = 500  # characters: the first sentence of each command, never cut; long ones are wrapped
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
            row = (name.ljust(widest), command.get_short_help_str(_WHOLE))
            groups.setdefault(group, []).append(row)
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_as_typed(self, ctx)
        return super().parse_args(ctx, args)

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
        from penstock.app.version import RELEASE

        typer.echo(f"penstock {RELEASE}")
        raise typer.Exit


def _new() -> typer.Typer:
    return typer.Typer(
        cls=Root,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )


root = _new()


def root_for(words: list[str]) -> typer.Typer:
    """The root with the one command that these words call: making all takes longer than to run it.

    All of them where the words call none, as `--help` and a name that is misspelt do.
    """
    called = [command for command in root.registered_commands if command.name in words[:1]]
    if not called:
        return root
    alone = _new()
    alone.registered_callback = root.registered_callback
    alone.registered_commands = called
    return alone


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
    root.command(name, cls=QuickCommand, rich_help_panel=group, context_settings=settings)(function)


_add(FIRST, init_and_dev.init)
_add(FIRST, init_and_dev.dev)
_add(FIRST, worker.worker)
_add(FIRST, enqueue.run, words=True)
_add(FIRST, enqueue.enqueue, words=True)
_add(FIRST, find.find, words=True)
_add(FIRST, show.show)
_add(FIRST, find.why)
_add(HOLD_BACK, rules.pause)
_add(HOLD_BACK, rules.resume)
_add(HOLD_BACK, rules.block)
_add(HOLD_BACK, rules.unblock)
_add(HOLD_BACK, rules.limit)
_add(HOLD_BACK, rules.order)
_add(HOLD_BACK, queue.queue)
_add(HOLD_BACK, rule_list.rules)
_add(HOLD_BACK, rule_list.freeze)
_add(JOBS, job_actions.cancel, words=True)
_add(JOBS, job_actions.retry, words=True)
_add(JOBS, job_actions.copy)
_add(JOBS, job_actions.delete, words=True)
_add(JOBS, signals.signal, words=True)
_add(JOBS, detached.detached)
_add(JOBS, debug.debug)
_add(LOOK, dashboard.dashboard)
_add(LOOK, top.top)
_add(LOOK, workers.workers)
_add(LOOK, find.count)
_add(LOOK, history.history)
_add(LOOK, schedules.schedules)
_add(LOOK, flows.flow)
_add(LOOK, topics.topics)
_add(LOOK, alerts.alerts)
_add(STORE, migrate_and_doctor.migrate)
_add(STORE, migrate_and_doctor.doctor)
_add(STORE, adopt.adopt)
_add(STORE, manager.manager)
_add(STORE, shards.shards)
_add(STORE, inspect_store.inspect)
_add(STORE, verify.verify)
_add(STORE, attach.attach)
_add(STORE, export_and_import.export, words=True)
_add(STORE, export_and_import.import_)
_add(SPARK, spark_worker.spark_worker)
_add(SPARK, pipeline.pipeline)
_add(SPARK, spark_package.spark)
_add(SEE, bench_and_demo.bench)
_add(SEE, bench_and_demo.demo)
