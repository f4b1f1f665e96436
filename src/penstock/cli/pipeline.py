"""penstock pipeline: history to the lake, reports and replays out of it."""

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
from penstock.operate.typed_values import span_of

if TYPE_CHECKING:
    from penstock.spark.pipelines.replay import Replayed
    from penstock.spark.pipelines.report.queries import Answers

_WIDE = 160  # signs in a line, from where on tables have room for every column
_ROWS = 15  # of a table; the page has more
_NAMED = 20  # refused jobs that are named one by one


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
            help="run: how long the store keeps for this lake what it has not, beyond the"
            " retention, as 30d.",
            show_default="as before, or 30d",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="report: where the page goes.", show_default="penstock-report.html"),
    ] = None,
    source: Annotated[
        Source | None,
        typer.Option(
            "--from", help="report: answer from the store or the lake.", show_default=False
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="replay: which jobs, a condition in SQL.", show_default=False)
    ] = None,
    name: Annotated[
        str, typer.Option(help="replay: a job is replayed once under a name.")
    ] = "replay",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="replay: only say what would be enqueued.")
    ] = False,
    reason: Reason = "",
    master: Annotated[
        str | None,
        typer.Option(help="The cluster, as spark://host:7077.", show_default="this machine"),
    ] = None,
    store: Store,
    json: Json = False,
) -> None:
    """Keep history in a lake of Parquet files, and make reports and replays of it, with Spark.

    run: take what is new to the lake. report: one HTML page, and tables. replay: enqueue again.
    compact: make large files of small ones. lakes: those that the store keeps history for.
    forget: keep nothing for this lake any more; its files stay.

    Example: penstock pipeline run --lake ./lake
    """
    if (step is PipelineCommand.REPLAY) is not (where is not None):
        raise Refused("--where says which jobs are replayed: it goes with replay, and only there")
    if hold is not None and step is not PipelineCommand.RUN:
        raise Refused("--hold says how long a store waits for a lake: it goes with run alone")
    if step in {PipelineCommand.LAKES, PipelineCommand.FORGET}:
        from penstock.cli.lakes import forget_lake, put_lakes
        from penstock.cli.store_choice import opened

        with opened(*store) as broker:
            if step is PipelineCommand.LAKES:
                put_lakes(broker, json=json)
            else:
                forget_lake(broker, lake, reason, json=json)
        return
    command = _Command(lake, master, store, json=json)
    try:
        if step is PipelineCommand.RUN:
            command.run(None if hold is None else span_of(hold, "--hold"))
        elif step is PipelineCommand.COMPACT:
            command.compact()
        elif step is PipelineCommand.REPORT:
            command.report(page or Path("penstock-report.html"), source)
        else:
            command.replay(where or "", name, reason, dry_run=dry_run)
    except KeyboardInterrupt:
        from penstock.cli import output

        output.complain(f"stopped: {_STOPPED[step]}")
        raise


class _Command:
    """One call: which lake and which store, and how it is told."""

    def __init__(
        self,
        folder: Path,
        master: str | None,
        store: Store,
        *,
        json: bool,
    ) -> None:
        from penstock.cli.output import Ticker
        from penstock.spark.session import session

        self._session = session
        self._folder = folder
        self._master = master
        self._store = store
        self._json = json
        self._ticker = Ticker(quiet=json)

    def run(self, hold: float | None) -> None:
        import msgspec

        from penstock.broker.lake_mark import Gap, gap_text
        from penstock.cli import output
        from penstock.cli.store_choice import opened

        with opened(*self._store):
            pass  # a store that is not there is said at once, not after Spark has started
        with self._lake().writing() as writing, self._spark() as spark:
            from penstock.spark.pipelines.datasets.build import build
            from penstock.spark.pipelines.datasets.open_jobs import keep_open_jobs
            from penstock.spark.pipelines.lake.export import export

            began = time.monotonic()
            done = export(
                spark,
                writing,
                lambda table, rows: self._ticker.say(f"{rows:,} {table} so far"),
                hold=hold,
            )
            took = time.monotonic() - began
            keep_open_jobs(spark, writing)
            days = build(
                spark, writing, lambda name, days: self._ticker.say(f"{name}: {days:,} days")
            )
            manifest = writing.manifest()
        self._ticker.done()
        rows = {name: sum(f.rows for f in manifest.table(name).files) for name in done.taken}
        if self._json:
            output.put_json(
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
        output.say(f"{new} are new in {self._folder}, in {took:.1f} s")
        held = ", ".join(f"{number:,} {table}" for table, number in rows.items())
        output.aside(f"it holds {held}; penstock pipeline report --lake {self._folder} shows them")
        for gap in done.gaps:
            missed = gap_text(Gap(gap.after, gap.until, gap.rows))
            output.complain(
                f"this lake misses {missed}: the store pruned before it got there. What came later"
                " is here. Run this more often, or let the store wait longer with --hold"
            )

    def compact(self) -> None:
        from penstock.cli import output

        lake = self._lake()
        lake.manifest()  # one that is not there is not made
        with lake.writing() as writing, self._spark() as spark:
            from penstock.spark.pipelines.lake.compact import compact

            fewer = compact(
                spark,
                writing,
                lambda table, day, before, after: self._ticker.say(
                    f"{table} of {day}: {before:,} files become {after:,}"
                ),
            )
            files = sum(len(table.files) for table in writing.manifest().tables.values())
        self._ticker.done()
        if self._json:
            output.put_json({"lake": str(self._folder), "fewer": fewer, "files": files})
        else:
            output.say(f"{fewer:,} files fewer; {files:,} are in {self._folder}")

    def report(self, place: Path, source: Source | None) -> None:
        import msgspec

        from penstock.cli import output
        from penstock.spark.pipelines.lake.manifest import read_manifest

        if not place.absolute().parent.is_dir():
            raise Refused(f"{place}: there is no such folder; name another place with --page")
        manifest = read_manifest(self._folder)
        if source is Source.LAKE:
            self._lake().manifest()
        with self._spark() as spark:
            from penstock.spark.pipelines.report.page import page
            from penstock.spark.pipelines.report.queries import answer
            from penstock.spark.pipelines.report.store_or_lake import lake_frames, store_frames

            small = source is Source.STORE or (source is None and self._store_answers(manifest))
            frames = store_frames(spark) if small else lake_frames(spark, self._lake())
            answers = answer(
                frames,
                lambda what, number, of: self._ticker.say(f"{what} ({number} of {of})"),
            )
        self._ticker.done()
        answers.made_at = time.time()
        answers.source = "store" if small else "lake"
        answers.where = self._where() if small else str(self._folder.absolute())
        if not small:
            answers.gaps = [msgspec.to_builtins(gap) for gap in self._lake().manifest().gaps]
        _write(place, page(answers))
        if self._json:
            output.put_json({**msgspec.structs.asdict(answers), "page": str(place)})
            return
        _put_tables(answers)
        output.say(f"the page with plots: {place}")

    def replay(self, where: str, name: str, reason: str, *, dry_run: bool) -> None:
        from penstock.cli import output
        from penstock.cli.store_choice import opened
        from penstock.operate.actions import Actions

        lake = self._lake()
        lake.manifest()
        with self._spark() as spark, opened(*self._store) as broker:
            from penstock.spark.pipelines.lake.raw_tables import read_raw
            from penstock.spark.pipelines.replay import chosen, replay

            jobs = chosen(read_raw(spark, lake, "attempts"), where)
            done = replay(
                jobs,
                None if dry_run else broker,
                name,
                lambda done: self._ticker.say(f"{done.found:,} jobs so far"),
            )
            if done.enqueued and not dry_run:
                said = {"jobs": done.enqueued, "replay": name, "where": where}
                Actions(broker, person()).record_enqueue(reason, said)
        self._ticker.done()
        if self._json:
            import msgspec

            output.put_json({**msgspec.structs.asdict(done), "dry_run": dry_run})
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
        from penstock.cli.store_choice import opened
        from penstock.spark.pipelines.report.store_or_lake import from_store

        if manifest is not None and sum(len(each.files) for each in manifest.tables.values()) == 0:
            manifest = None
        with opened(*self._store) as broker:
            return from_store(broker, manifest)

    @contextmanager
    def _spark(self) -> Generator[Any]:
        """A session, ended with the command unless it was there before."""
        from penstock.cli.store_choice import store_url

        began = time.time()
        resolved = store_url(*self._store)
        from penstock.spark.pipelines.session_settings import tuned

        with quietly_interrupted():
            spark = self._session(self._master, app_name="penstock pipeline", url=resolved.url)
            found = spark.sparkContext.startTime < 1000 * began
            try:
                with tuned(spark):
                    yield spark
            finally:
                if not found:
                    spark.stop()


def _write(place: Path, text: str) -> None:
    from penstock.app.private_files import write_new

    fresh = place.with_name(f".{place.name}.new")
    try:
        write_new(fresh, text.encode())
        fresh.replace(place)
    except OSError as error:
        raise Refused(
            f"the page cannot be written to {place}: {error.strerror}; name another place with"
            " --page"
        ) from None


def _put_tables(answers: Answers) -> None:
    """The report for a terminal."""
    import rich.text

    from penstock.cli import output
    from penstock.spark.pipelines.report.page import heading
    from penstock.spark.pipelines.report.sections import sections

    console = output.console()
    output.say(heading(answers))
    for section in sections(answers).values():
        if not section.rows:
            continue
        output.say("")
        output.say(section.question, "bold")
        columns = [each for each in section.columns if console.width >= _WIDE or not each.detail]
        numbers = [column.head for column in columns if column.number]
        made = output.table(*(column.head for column in columns), right=numbers)
        for row in section.rows[:_ROWS]:
            made.add_row(*(rich.text.Text(column.text(row)) for column in columns))
        console.print(made)
        if len(section.rows) > _ROWS:
            output.say(f"{len(section.rows) - _ROWS} more are on the page", "dim")
    output.say("")


def _put_replayed(done: Replayed, *, dry_run: bool) -> None:
    from penstock.cli import output

    for job, reason in list(done.reasons.items())[:_NAMED]:
        output.complain(f"{job} is not replayed: {reason}")
    if done.refused > _NAMED:
        output.complain(f"and {done.refused - _NAMED:,} more")
    if not done.found:
        output.say("no job in the lake ended as --where says: nothing to enqueue")
    elif dry_run:
        output.say(
            f"{done.enqueued:,} of {done.found:,} jobs would be enqueued, but for those that were"
            f" replayed as {done.name!r} before"
        )
    else:
        output.say(
            f"{done.enqueued:,} of {done.found:,} jobs are enqueued again as {done.name!r};"
            f" {done.known:,} had been before"
        )
