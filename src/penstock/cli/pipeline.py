"""pipeline: the datasets of an app; history to the lake, and reports and replays from it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.lake_command import LakeCommand, ReportSource
from penstock.cli.options import Json, Reason, Store, with_options
from penstock.errors import Refused
from penstock.operate.parse_input import parse_duration
from penstock.operate.storage_options import options_of_environment, parse_options

if TYPE_CHECKING:
    from penstock.cli.datasets import RunOptions


class PipelineCommand(StrEnum):
    RUN = "run"
    PLAN = "plan"
    WHY = "why"
    GRAPH = "graph"
    REPORT = "report"
    REPLAY = "replay"
    COMPACT = "compact"
    LAKES = "lakes"
    FORGET = "forget"
    FORGET_ROWS = "forget-rows"


_OF_DATASETS = (PipelineCommand.PLAN, PipelineCommand.WHY, PipelineCommand.GRAPH)
_STOPPED = {
    PipelineCommand.RUN: "what was taken before is in the lake; the next run goes on from there",
    PipelineCommand.COMPACT: "the lake has the same rows as before",
    PipelineCommand.REPORT: "no page was written",
    PipelineCommand.FORGET_ROWS: "the same command again deletes what is left",
    PipelineCommand.REPLAY: "what was enqueued stays; the same --name again enqueues the others",
}


@with_options
def pipeline(
    step: Annotated[
        PipelineCommand,
        typer.Argument(
            metavar="run|plan|why|graph|report|replay|compact|lakes|forget|forget-rows",
            help="What to do.",
            show_default=False,
        ),
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET]...",
            help="run, plan: datasets of the app; why: a dataset and one of its partitions.",
            show_default=False,
        ),
    ] = None,
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="run: all datasets of the app, and no lake.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="run: also partitions that are current.")
    ] = False,
    max_running: Annotated[
        int | None,
        typer.Option(
            help="run: the most runs of datasets at a time, over all workers.",
            min=1,
            show_default="as before, or 4",
        ),
    ] = None,
    lake: Annotated[
        str, typer.Option(help="The lake: a folder, or a URL as s3://bucket/lake.")
    ] = "lake",
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            envvar="PENSTOCK_STORAGE_OPTIONS",
            help="NAME=VALUE for the lake's object store; may be repeated.",
            show_default=False,
        ),
    ] = None,
    hold: Annotated[
        str | None,
        typer.Option(
            help="run: how long the store keeps history for this lake beyond its retention,"
            " for example 30d.",
            show_default="as before, or 30d",
        ),
    ] = None,
    read_url: Annotated[
        str | None,
        typer.Option(
            envvar="PENSTOCK_READ_URL",
            help="run: a replica of the store, from which its history is read.",
            show_default="the store",
        ),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            help="run: the most connections that read at a time.",
            min=1,
            show_default="one for each core",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="report: the file to write.", show_default="penstock-report.html"),
    ] = None,
    source: Annotated[
        ReportSource | None,
        typer.Option("--from", help="report: read the store or the lake.", show_default=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="report: attempts that ended from then on: 7d (ago), or 2026-11-01."
            " plan, run: partitions from that one on.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="report: and up to then. plan, run: and up to that one.", show_default=False
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="report: only this task.", show_default=False)
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="report: only this queue.", show_default=False)
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="replay: which jobs; a SQL condition.", show_default=False)
    ] = None,
    name: Annotated[
        str, typer.Option(help="replay: a job is replayed only once under the same name.")
    ] = "replay",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="run of datasets, replay, forget-rows: print what would be done, and change"
            " nothing.",
        ),
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            help="compact: drop days that ended longer ago, for example 400d.",
            show_default="all are kept",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="forget-rows: rows with this key.", show_default=False)
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(help="forget-rows: rows with this tag, NAME=VALUE.", show_default=False),
    ] = None,
    reason: Reason = "",
    master: Annotated[
        str | None,
        typer.Option(
            help="The cluster, for example spark://host:7077.", show_default="this machine"
        ),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Make the datasets of an app; keep history in a lake, and make reports and replays from it.

    plan: what datasets lack. run DATASET: make it. why: of one partition. graph: what needs what.
    run, without a name: copy new history to the lake. report: write an HTML page, and print tables.
    replay: enqueue jobs of the lake again. compact: merge small files. lakes: list the lakes of the
    store. forget: stop keeping history for a lake; its files stay. forget-rows: delete one person's
    rows for good.

    Example: penstock pipeline run --lake ./lake
    """
    _need_extra(step)
    of_datasets = step in _OF_DATASETS or (step is PipelineCommand.RUN and (dataset or all_))
    options = parse_options(storage_option or ())
    if of_datasets:
        from penstock.cli.datasets import RunOptions

        _check_environment(options)
        asked = RunOptions(since, until, again, max_running, dry_run, reason)
        _datasets(step, dataset or [], asked, store, every=all_, json=json)
        return
    _refuse_datasets(step, bool(dataset or all_ or again or max_running))
    if (step is PipelineCommand.REPLAY) is not (where is not None):
        raise Refused("replay needs --where, the jobs to replay; the other steps do not take it")
    _check_owners(
        step,
        ("--hold", hold, PipelineCommand.RUN),
        ("--keep", keep, PipelineCommand.COMPACT),
        ("--key", key, PipelineCommand.FORGET_ROWS),
        ("--tag", tag, PipelineCommand.FORGET_ROWS),
        ("--since", since, PipelineCommand.REPORT),
        ("--until", until, PipelineCommand.REPORT),
        ("--task", task, PipelineCommand.REPORT),
        ("--queue", queue, PipelineCommand.REPORT),
    )
    if step in {PipelineCommand.LAKES, PipelineCommand.FORGET}:
        from penstock.cli.lakes import forget_lake, print_lakes
        from penstock.cli.store_choice import open_store

        with open_store(*store) as broker:
            if step is PipelineCommand.LAKES:
                print_lakes(broker, json=json)
            else:
                forget_lake(broker, lake, options, reason, json=json)
        return
    command = LakeCommand(lake, options, master, store, json=json)
    try:
        if step is PipelineCommand.RUN:
            command.run(
                None if hold is None else parse_duration(hold, "--hold"), read_url, connections
            )
        elif step is PipelineCommand.COMPACT:
            command.compact(None if keep is None else parse_duration(keep, "--keep"))
        elif step is PipelineCommand.FORGET_ROWS:
            command.forget_rows(key, tag, reason, dry_run=dry_run)
        elif step is PipelineCommand.REPORT:
            from penstock.cli.report import report_range

            asked = report_range(since, until, task, queue)
            command.report(page or Path("penstock-report.html"), source, asked)
        else:
            command.replay(where or "", name, reason, dry_run=dry_run)
    except KeyboardInterrupt:
        from penstock.cli import output

        output.print_error(f"stopped: {_STOPPED[step]}")
        raise


def _datasets(
    step: PipelineCommand,
    names: list[str],
    options: RunOptions,
    store: Store,
    *,
    every: bool,
    json: bool,
) -> None:
    from penstock.cli.datasets import print_graph, print_plan, print_why, run_datasets

    if names and every:
        raise Refused("--all and names of datasets both say which: give one of them")
    if step is PipelineCommand.RUN:
        run_datasets(store, names, options, json=json)
    elif step is PipelineCommand.PLAN:
        print_plan(store, names, options, json=json)
    elif step is PipelineCommand.GRAPH:
        print_graph(store, json=json)
    elif len(names) == 2:
        print_why(store, names[0], names[1], json=json)
    else:
        raise Refused("why: name a dataset and one of its partitions, as in: why rides 2026-01-31")


def _need_extra(step: PipelineCommand) -> None:
    from importlib.util import find_spec

    if step is PipelineCommand.LAKES:
        return
    missing = [name for name in ("pyspark", "pyarrow", "deltalake") if find_spec(name) is None]
    if missing:
        raise Refused(f"penstock pipeline needs {missing[0]}: pip install 'penstock-queue[spark]'")


def _refuse_datasets(step: PipelineCommand, given: object) -> None:
    if given:
        raise Refused(
            f"pipeline {step} takes no datasets, --all, --again or --max-running: those are of"
            " pipeline run DATASET..."
        )


def _check_environment(options: dict[str, str]) -> None:
    if options != options_of_environment():
        raise Refused(
            "--storage-option is for the lake: set PENSTOCK_STORAGE_OPTIONS for datasets, here and"
            " where their workers run"
        )


def _check_owners(step: PipelineCommand, *options: tuple[str, str | None, PipelineCommand]) -> None:
    for option, value, owner in options:
        if value is not None and step is not owner:
            raise Refused(f"{option} belongs to pipeline {owner}: leave it out here")
