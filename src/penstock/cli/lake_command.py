"""What `penstock pipeline` does with a lake: run, compact, report, replay and forget-rows."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.options import Store, person
from penstock.cli.spark_interrupt import quietly_interrupted
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.spark.pipelines.replay import Replayed
    from penstock.spark.pipelines.report.queries import Range
    from penstock.spark.pipelines.report.rollup_source import StoreRollups

_NAMED = 20  # refused jobs that are listed one by one


class ReportSource(StrEnum):
    STORE = "store"
    LAKE = "lake"


class LakeCommand:
    """One call of the command: its lake, its store, its output."""

    def __init__(
        self,
        location: str,
        options: Mapping[str, str],
        master: str | None,
        store: Store,
        *,
        json: bool,
    ) -> None:
        from penstock.cli.output import ProgressLine
        from penstock.spark.pipelines.lake.lake import Lake
        from penstock.spark.session import session

        self._session = session
        self._lake = Lake(location, options)
        self._name = location
        self._master = master
        self._store = store
        self._json = json
        self._progress_line = ProgressLine(quiet=json)

    def run(self, hold: float | None, read_url: str | None, connections: int | None) -> None:
        import msgspec

        from penstock.broker.lake_mark import Gap, gap_text
        from penstock.cli import output
        from penstock.cli.store_choice import open_store

        with open_store(*self._store):
            pass  # fail before Spark is started if there is no store
        lake = self._lake
        lake.exists()  # refused before Spark is started if it cannot be one
        with self._spark() as spark:
            from penstock.spark.pipelines.fill_lake import fill_lake

            done = fill_lake(
                spark,
                lake,
                hold=hold,
                read_url=read_url,
                connections=connections,
                on_progress=self._progress_line.show,
            )
        self._progress_line.clear()
        rows = {name: sum(lake.table(name).rows_by_day().values()) for name in done.taken}
        if self._json:
            output.print_json(
                {
                    "lake": self._name,
                    "taken": done.taken,
                    "rows": rows,
                    "days": done.days,
                    "gaps": [msgspec.to_builtins(gap) for gap in done.gaps],
                }
            )
            return
        new = ", ".join(f"{number:,} {table}" for table, number in done.taken.items())
        output.print_text(f"{new} added to {self._name} in {done.export_seconds:.1f} s")
        held = ", ".join(f"{number:,} {table}" for table, number in rows.items())
        output.print_note(
            f"it holds {held}; penstock pipeline report --lake {self._name} shows them"
        )
        for gap in done.gaps:
            missed = gap_text(Gap(gap.after, gap.until, gap.rows))
            output.print_error(
                f"this lake misses {missed}: the store pruned it before this run. Later history is"
                " complete. Run this more often, or keep history longer with --hold"
            )

    def compact(self, keep: float | None) -> None:
        import msgspec

        from penstock.cli import output
        from penstock.spark.pipelines.lake.upkeep import compact

        self._lake.table("attempts")  # raises if there is no lake: it is not created here
        done = compact(self._lake, self._progress_line.show, keep)
        self._progress_line.clear()
        if self._json:
            output.print_json({"lake": self._name, **msgspec.structs.asdict(done)})
            return
        output.print_text(f"{done.fewer:,} files fewer; {self._name} has {done.files:,} now")
        for table, rows in done.dropped.items():
            if rows:
                output.print_text(f"{rows:,} rows of {table} were older than --keep, and are gone")

    def forget_rows(self, key: str | None, tag: str | None, reason: str, *, dry_run: bool) -> None:
        import msgspec

        from penstock.cli import output
        from penstock.cli.store_choice import open_store
        from penstock.operate.actions import Actions
        from penstock.spark.pipelines.lake.forget_rows import forget_rows, row_choice

        choice = row_choice(key, tag)
        with open_store(*self._store) as broker:
            done = forget_rows(self._lake, choice, dry_run=True)
            if not dry_run:
                # Recorded first, and without the key or value: the history would keep it again.
                data = {
                    "lake": self._lake.id,
                    "place": str(self._lake),
                    "rows": sum(done.rows.values()),
                    "by": "key" if tag is None else "tag",
                }
                Actions(broker, person()).record_forgotten_rows(reason, data)
                done = forget_rows(self._lake, choice, dry_run=False)
        if self._json:
            shown = msgspec.structs.asdict(done)
            output.print_json({"lake": self._name, **shown, "dry_run": dry_run})
            return
        rows = ", ".join(f"{number:,} {table}" for table, number in done.rows.items())
        if not dry_run:
            output.print_text(f"{rows} are deleted from {self._name} for good")
            return
        output.print_text(f"{rows} would be deleted, from {done.files:,} files")
        output.print_note(
            f"Time travel ends: {done.versions:,} earlier versions of the tables can then not be"
            " read, nor can a query go on that reads one now. An export that runs repeats its"
            " batch. Rows that the store has, or a copy or backup of the lake, stay"
        )

    def report(self, page_file: Path, source: ReportSource | None, asked: Range) -> None:
        import msgspec

        from penstock.cli import output
        from penstock.cli.report import print_tables, write_page
        from penstock.spark.pipelines.lake.marks import gaps_of
        from penstock.spark.pipelines.report.page import page
        from penstock.spark.pipelines.report.queries import query_report
        from penstock.spark.pipelines.report.rollup_source import LakeRollups

        if not page_file.absolute().parent.is_dir():
            raise Refused(f"{page_file}: there is no such folder; name another file with --page")
        of_store = None if source is ReportSource.LAKE else self._store_rollups(source)
        answers = query_report(of_store or LakeRollups(self._lake), asked)
        answers.made_at = time.time()
        if of_store is not None:
            answers.source, answers.where = "store", self._where()
        else:
            answers.source, answers.where = "lake", str(self._lake)
            answers.gaps = [msgspec.to_builtins(gap) for gap in gaps_of(self._lake)]
        write_page(page_file, page(answers))
        if self._json:
            output.print_json({**msgspec.structs.asdict(answers), "page": str(page_file)})
            return
        print_tables(answers)
        output.print_text(f"the page with plots: {page_file}")

    def replay(self, where: str, name: str, reason: str, *, dry_run: bool) -> None:
        from penstock.cli import output
        from penstock.cli.store_choice import open_store
        from penstock.operate.actions import Actions

        lake = self._lake
        lake.table("attempts")
        with self._spark() as spark, open_store(*self._store) as broker:
            from penstock.spark.pipelines.lake.raw_tables import read_raw
            from penstock.spark.pipelines.replay import chosen, replay

            jobs = chosen(read_raw(spark, lake, "attempts"), where)
            done = replay(jobs, name, broker, dry_run=dry_run)
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

    def _where(self) -> str:
        from penstock.app.settings import mask
        from penstock.cli.store_choice import store_url

        return mask(store_url(*self._store).url)

    def _store_rollups(self, source: ReportSource | None) -> StoreRollups | None:
        """Those of the store, if that is asked for, or has few rows and all of them."""
        from penstock.cli.store_choice import open_store
        from penstock.spark.pipelines.report.rollup_source import StoreRollups, from_store

        with open_store(*self._store) as broker:
            chosen = source is ReportSource.STORE or from_store(broker, self._lake)
            return StoreRollups(broker) if chosen else None

    @contextmanager
    def _spark(self) -> Generator[Any]:
        """A Spark session; stopped at the end unless it existed before."""
        from penstock.cli.store_choice import store_url

        began = time.time()
        resolved = store_url(*self._store)
        from pyspark.sql import SparkSession

        from penstock.spark.connect import names_connect, set_store_here
        from penstock.spark.one_sentence import one_sentence
        from penstock.spark.pipelines.session_settings import pipeline_settings
        from penstock.spark.session_store import set_store

        with quietly_interrupted(), one_sentence():
            if names_connect(self._master):
                found = SparkSession.getActiveSession() is not None
                spark = self._session(
                    self._master, profile=self._store.profile, url=self._store.url
                )
                set_store_here(spark, resolved)
            else:
                spark = self._session(self._master, app_name="penstock pipeline", url=resolved.url)
                if resolved.key_file is not None:  # of the profile
                    set_store(spark, resolved.url, resolved.key_file)
                found = spark.sparkContext.startTime < 1000 * began
            try:
                with pipeline_settings(spark):
                    yield spark
            finally:
                if not found:
                    spark.stop()


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
