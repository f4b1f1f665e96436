"""pipeline: history to the lake, and reports and replays from it."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.cli.spark_interrupt import quietly_interrupted
from penstock.errors import Refused
from penstock.operate.parse_input import parse_duration

if TYPE_CHECKING:
    from penstock.spark.pipelines.replay import Replayed
    from penstock.spark.pipelines.report.queries import ReportData

_WIDE = 160  # characters: tables show every column from this width on
_ROWS = 15  # of a table; the page has more
_NAMED = 20  # refused jobs that are listed one by one


class PipelineCommand(StrEnum):
    RUN = "run"
    REPORT = "report"
    REPLAY = "replay"
    COMPACT = "compact"
    LAKES = "lakes"
    FORGET = "forget"


_STOPPED = {
    PipelineCommand.RUN: "what was taken before is in the lake; the next run goes on from there",
    PipelineCommand.COMPACT: "the lake has the same rows as before",
    PipelineCommand.REPORT: "no page was written",
    PipelineCommand.REPLAY: "what was enqueued stays; the same --name again enqueues the others",
}


class Source(StrEnum):
    STORE = "store"
    LAKE = "lake"


@with_options
def pipeline(
    step: Annotated[
        PipelineCommand,
        typer.Argument(
            metavar="run|report|replay|compact|lakes|forget",
            help="What to do.",
            show_default=False,
        ),
    ],
    *,
    lake: Annotated[Path, typer.Option(help="The lake's folder.")] = Path("lake"),
    hold: Annotated[
        str | None,
        typer.Option(
            help="run: how long the store keeps history for this lake beyond its retention,"
            " for example 30d.",
            show_default="as before, or 30d",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="report: the file to write.", show_default="penstock-report.html"),
    ] = None,
    source: Annotated[
        Source | None,
        typer.Option("--from", help="report: read the store or the lake.", show_default=False),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="replay: which jobs; a SQL condition.", show_default=False)
    ] = None,
    name: Annotated[
        str, typer.Option(help="replay: a job is replayed only once under the same name.")
    ] = "replay",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="replay: print what would be enqueued, and change nothing."),
    ] = False,
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
    """Keep history in a lake of Parquet files, and make reports and replays from it, with Spark.

    run: copy new history to the lake. report: write an HTML page, and print tables. replay: enqueue
    jobs of the lake again. compact: merge small files. lakes: list the lakes of the store. forget:
    stop keeping history for a lake; its files stay.

    Example: penstock pipeline run --lake ./lake
    """
    if (step is PipelineCommand.REPLAY) is not (where is not None):
        raise Refused("replay needs --where, the jobs to replay; the other steps do not take it")
    if hold is not None and step is not PipelineCommand.RUN:
        raise Refused("--hold belongs to pipeline run: leave it out here")
    if step in {PipelineCommand.LAKES, PipelineCommand.FORGET}:
        from penstock.cli.lakes import forget_lake, print_lakes
        from penstock.cli.store_choice import open_store

        with open_store(*store) as broker:
            if step is PipelineCommand.LAKES:
                print_lakes(broker, json=json)
            else:
                forget_lake(broker, lake, reason, json=json)
        return
    command = _Command(lake, master, store, json=json)
    try:
        if step is PipelineCommand.RUN:
            command.run(None if hold is None else parse_duration(hold, "--hold"))
        elif step is PipelineCommand.COMPACT:
            command.compact()
        elif step is PipelineCommand.REPORT:
            command.report(page or Path("penstock-report.html"), source)
        else:
            command.replay(where or "", name, reason, dry_run=dry_run)
    except KeyboardInterrupt:
        from penstock.cli import output

        output.print_error(f"stopped: {_STOPPED[step]}")
        raise


class _Command:
    """One call of the command: its lake, its store, its output."""

    def __init__(
        self,
        folder: Path,
        master: str | None,
        store: Store,
        *,
        json: bool,
    ) -> None:
        from penstock.cli.output import ProgressLine
        from penstock.spark.session import session

        self._session = session
        self._folder = folder
        self._master = master
        self._store = store
        self._json = json
        self._progress_line = ProgressLine(quiet=json)

    def run(self, hold: float | None) -> None:
        import msgspec

        from penstock.broker.lake_mark import Gap, gap_text
        from penstock.cli import output
        from penstock.cli.store_choice import open_store

        with open_store(*self._store):
            pass  # fail before Spark is started if there is no store
        with self._lake().writing() as writing, self._spark() as spark:
            from penstock.spark.pipelines.datasets.build import build
            from penstock.spark.pipelines.datasets.open_jobs import keep_open_jobs
            from penstock.spark.pipelines.lake.export import export

            began = time.monotonic()
            done = export(
                spark,
                writing,
                lambda table, rows: self._progress_line.show(f"{rows:,} {table} so far"),
                hold=hold,
            )
            took = time.monotonic() - began
            keep_open_jobs(spark, writing)
            days = build(
                spark,
                writing,
                lambda name, days: self._progress_line.show(f"{name}: {days:,} days"),
            )
            manifest = writing.manifest()
        self._progress_line.clear()
        rows = {name: sum(f.rows for f in manifest.table(name).files) for name in done.taken}
        if self._json:
            output.print_json(
                {
                    "lake": str(self._folder),
                    "taken": done.taken,
                    "rows": rows,
                    "days": days,
                    "gaps": [msgspec.to_builtins(gap) for gap in done.gaps],
                }
            )
            return
        new = ", ".join(f"{number:,} {table}" for table, number in done.taken.items())
        output.print_text(f"{new} added to {self._folder} in {took:.1f} s")
        held = ", ".join(f"{number:,} {table}" for table, number in rows.items())
        output.print_note(
            f"it holds {held}; penstock pipeline report --lake {self._folder} shows them"
        )
        for gap in done.gaps:
            missed = gap_text(Gap(gap.after, gap.until, gap.rows))
            output.print_error(
                f"this lake misses {missed}: the store pruned it before this run. Later history is"
                " complete. Run this more often, or keep history longer with --hold"
            )

    def compact(self) -> None:
        from penstock.cli import output

        lake = self._lake()
        lake.manifest()  # raises if there is no lake: it is not created here
        with lake.writing() as writing, self._spark() as spark:
            from penstock.spark.pipelines.lake.compact import compact

            fewer = compact(
                spark,
                writing,
                lambda table, day, before, after: self._progress_line.show(
                    f"{table} of {day}: {before:,} files become {after:,}"
                ),
            )
            files = sum(len(table.files) for table in writing.manifest().tables.values())
        self._progress_line.clear()
        if self._json:
            output.print_json({"lake": str(self._folder), "fewer": fewer, "files": files})
        else:
            output.print_text(f"{fewer:,} files fewer; {self._folder} has {files:,} now")

    def report(self, page_file: Path, source: Source | None) -> None:
        import msgspec

        from penstock.cli import output
        from penstock.spark.pipelines.lake.manifest import read_manifest

        if not page_file.absolute().parent.is_dir():
            raise Refused(f"{page_file}: there is no such folder; name another file with --page")
        manifest = read_manifest(self._folder)
        if source is Source.LAKE:
            self._lake().manifest()
        with self._spark() as spark:
            from penstock.spark.pipelines.report.page import page
            from penstock.spark.pipelines.report.queries import query_report
            from penstock.spark.pipelines.report.store_or_lake import lake_frames, store_frames

            small = source is Source.STORE or (source is None and self._store_answers(manifest))
            frames = store_frames(spark) if small else lake_frames(spark, self._lake())
            answers = query_report(
                frames,
                lambda what, number, of: self._progress_line.show(f"{what} ({number} of {of})"),
            )
        self._progress_line.clear()
        answers.made_at = time.time()
        answers.source = "store" if small else "lake"
        answers.where = self._where() if small else str(self._folder.absolute())
        if not small:
            answers.gaps = [msgspec.to_builtins(gap) for gap in self._lake().manifest().gaps]
        _write(page_file, page(answers))
        if self._json:
            output.print_json({**msgspec.structs.asdict(answers), "page": str(page_file)})
            return
        _put_tables(answers)
        output.print_text(f"the page with plots: {page_file}")

    def replay(self, where: str, name: str, reason: str, *, dry_run: bool) -> None:
        from penstock.cli import output
        from penstock.cli.store_choice import open_store
        from penstock.operate.actions import Actions

        lake = self._lake()
        lake.manifest()
        with self._spark() as spark, open_store(*self._store) as broker:
            from penstock.spark.pipelines.lake.raw_tables import read_raw
            from penstock.spark.pipelines.replay import chosen, replay

            jobs = chosen(read_raw(spark, lake, "attempts"), where)
            done = replay(
                jobs,
                None if dry_run else broker,
                name,
                lambda done: self._progress_line.show(f"{done.found:,} jobs so far"),
            )
            if done.enqueued and not dry_run:
                data = {"jobs": done.enqueued, "replay": name, "where": where}
                Actions(broker, person()).record_enqueue(reason, data)
        self._progress_line.clear()
        if self._json:
            import msgspec

            output.print_json({**msgspec.structs.asdict(done), "dry_run": dry_run})
        else:
            _put_replayed(done, dry_run=dry_run)
        if done.refused:
            raise typer.Exit(1)

    def _lake(self) -> Any:
        from penstock.spark.pipelines.lake.lake import Lake

        return Lake(self._folder)

    def _where(self) -> str:
        from penstock.app.settings import mask
        from penstock.cli.store_choice import store_url

        return mask(store_url(*self._store).url)

    def _store_answers(self, manifest: Any) -> bool:
        from penstock.cli.store_choice import open_store
        from penstock.spark.pipelines.report.store_or_lake import from_store

        if manifest is not None and sum(len(each.files) for each in manifest.tables.values()) == 0:
            manifest = None
        with open_store(*self._store) as broker:
            return from_store(broker, manifest)

    @contextmanager
    def _spark(self) -> Generator[Any]:
        """A Spark session; stopped at the end unless it existed before."""
        from penstock.cli.store_choice import store_url

        began = time.time()
        resolved = store_url(*self._store)
        from penstock.spark.pipelines.session_settings import pipeline_settings

        with quietly_interrupted():
            spark = self._session(self._master, app_name="penstock pipeline", url=resolved.url)
            found = spark.sparkContext.startTime < 1000 * began
            try:
                with pipeline_settings(spark):
                    yield spark
            finally:
                if not found:
                    spark.stop()


def _write(page_file: Path, text: str) -> None:
    from penstock.app.private_files import write_new

    fresh = page_file.with_name(f".{page_file.name}.new")
    try:
        write_new(fresh, text.encode())
        fresh.replace(page_file)
    except OSError as error:
        raise Refused(
            f"the page cannot be written to {page_file}: {error.strerror}; name another file with"
            " --page"
        ) from None


def _put_tables(answers: ReportData) -> None:
    """The report for a terminal."""
    import rich.text

    from penstock.cli import output
    from penstock.spark.pipelines.report.page import heading
    from penstock.spark.pipelines.report.sections import sections

    console = output.console()
    output.print_text(heading(answers))
    for section in sections(answers).values():
        if not section.rows:
            continue
        output.print_text("")
        output.print_text(section.question, "bold")
        columns = [each for each in section.columns if console.width >= _WIDE or not each.detail]
        numbers = [column.head for column in columns if column.number]
        made = output.table(*(column.head for column in columns), right=numbers)
        for row in section.rows[:_ROWS]:
            made.add_row(*(rich.text.Text(column.text(row)) for column in columns))
        console.print(made)
        if len(section.rows) > _ROWS:
            output.print_text(f"{len(section.rows) - _ROWS} more are on the page", "dim")
    output.print_text("")


def _put_replayed(done: Replayed, *, dry_run: bool) -> None:
    from penstock.cli import output

    for job, reason in list(done.reasons.items())[:_NAMED]:
        output.print_error(f"{job} is not replayed: {reason}")
    if done.refused > _NAMED:
        output.print_error(f"and {done.refused - _NAMED:,} more")
    if not done.found:
        output.print_text("no job in the lake matches --where: nothing to enqueue")
    elif dry_run:
        output.print_text(
            f"{done.enqueued:,} of {done.found:,} jobs would be enqueued, but for those that were"
            f" replayed as {done.name!r} before"
        )
    else:
        output.print_text(
            f"{done.enqueued:,} of {done.found:,} jobs are enqueued again as {done.name!r};"
            f" {done.known:,} had been before"
        )
