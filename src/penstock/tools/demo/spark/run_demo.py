"""`penstock demo --spark`, step by step: a frame, its jobs, a backfill, a lake, a report, a check.

The store is a SQLite file, which needs no server. Everything stays, so that the user can look
around.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.protocol import Broker
from penstock.cli import output
from penstock.cli.store_choice import use_store
from penstock.job import ENDED
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.tools.demo.demo_folder import using_folder
from penstock.tools.demo.spark import tasks
from penstock.tools.demo.step_printer import StepPrinter
from penstock.tools.demo.worker_process import WorkerProcess, signals_deferred, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.fleet.driver import Fleet
    from penstock.tools.demo.spark.proof import FrameProof
    from penstock.tools.demo.spark.session_and_threads import DemoThread

_TARGET = "penstock.tools.demo.spark.tasks"
_QUEUE = "orders"
_MEGA = 1_000_000
_PATIENCE = 300.0  # without any progress; on a busy machine Spark needs a minute to start


class SparkDemo:
    """One run of the demo."""

    def __init__(self, printer: StepPrinter, folder: Path, jobs: int) -> None:
        self.printer = printer
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self.lake = folder / "lake"
        self.page = folder / "report.html"
        self.jobs = jobs
        self.seconds: dict[str, float] = {}  # by step
        self.cents_of_days = 0
        self.local = ""  # what the names of the local worker's processes begin with
        self.worker: WorkerProcess | None = None
        self.threads: list[DemoThread] = []

    @property
    def broker(self) -> Broker:
        return tasks.app.broker

    def run(self) -> FrameProof:
        """Whatever it started has ended when it returns or raises."""
        from penstock.tools.demo.spark.session_and_threads import running_session

        self.printer.step("Start Spark on this machine; no cluster is needed.")
        began = time.monotonic()
        with ExitStack() as stack:
            with self.printer.busy("starting Java and Spark"):
                spark = stack.enter_context(running_session(self.url, self.folder))
            self._took("session", began)
            self.printer.line(
                f"Spark {spark.version} is ready after {self.seconds['session']:.0f} s; its log:"
            )
            self.printer.line(str(self.folder / "spark.log"), "dim")
            try:
                frame = self.enqueue(spark)
                self.work(self.start_workers(spark))
                self.backfill()
                self.export(spark)
                self.report()
                return self.prove(spark, frame)
            finally:
                self.stop(now=True)

    def stop(self, *, now: bool = False) -> None:
        """End the worker and the threads; safe to call again."""
        try:
            for thread in self.threads:
                thread.stop(now=now)
            self.threads.clear()
        finally:
            if self.worker is not None:
                self.worker.stop()
                self.worker = None

    def enqueue(self, spark: SparkSession) -> DataFrame:
        printer = self.printer
        printer.step(f"A frame of {self.jobs:,} orders: each row becomes a job.")
        path = str(self.folder / tasks.ORDERS)
        with printer.busy("writing the frame as Parquet files, a folder per day"):
            tasks.orders(spark, self.jobs).write.partitionBy("day").parquet(path)
            frame = spark.read.parquet(path)
        # Paused until all workers have started: else the first one would run most of the jobs.
        self.broker.put(
            Rule(RuleKind.PAUSE, queue=_QUEUE, author="you", reason="workers are starting")
        )
        printer.line('orders.write.format("penstock").option("task", "…:price")', "cyan")
        printer.line('      .mode("append").save()', "cyan")
        began = time.monotonic()
        with printer.busy("writing rows as jobs"):
            (
                frame.select("order", "pieces")
                .write.format("penstock")
                .option("task", tasks.price.name)
                .option("app", _TARGET)
                .mode("append")
                .save()
            )
        self._took("enqueue", began)
        stored = sum(count.total for count in self.broker.count())
        printer.line(
            f"{stored:,} jobs are stored after {self.seconds['enqueue']:.1f} s"
            f" ({_rate(stored, self.seconds['enqueue'])}), in one commit"
        )
        return frame

    def start_workers(self, spark: SparkSession) -> Fleet:
        from penstock.spark.fleet.driver import Fleet
        from penstock.tools.demo.spark.session_and_threads import SLOTS, DemoThread

        printer = self.printer
        printer.step(
            "Start two kinds of workers for the same queue: a local one, and one on Spark."
        )
        options = ("--queues", _QUEUE, "--processes", "1")
        printer.line(f"penstock worker {_TARGET} {' '.join(options)}", "cyan")
        printer.line(f"penstock spark-worker {_TARGET} --slots {SLOTS}", "cyan")
        log = self.folder / "worker.log"
        with signals_deferred():
            self.worker = WorkerProcess(_TARGET, self.url, log, *options)
            self.local = f"{socket.gethostname()}-{self.worker.pid}-"
            fleet = Fleet(spark, _TARGET, SLOTS)
            self.threads.append(DemoThread(fleet))

        def alive() -> int:
            return sum(row.alive for row in self.broker.workers())

        with printer.busy("starting workers"):
            self.wait(lambda: alive() > SLOTS, "workers", alive)
        printer.line("the queue was paused until all of them were ready; now:")
        printer.line(f"penstock resume {_QUEUE}", "cyan")
        return fleet

    def work(self, fleet: Fleet) -> None:
        printer = self.printer
        self.broker.clear(Rule, rule_id(RuleKind.PAUSE, queue=_QUEUE), author="you")
        began = time.monotonic()
        bar = printer.bar(self.jobs, "jobs have ended")

        def left() -> int:
            left = sum(count.total for count in self.broker.count())
            bar.at(self.jobs - left)
            return left

        try:
            self.wait(lambda: left() == 0, "the end of all jobs", left)
        finally:
            bar.close()
        self._took("work", began)
        self.stop()
        printer.line(
            f"{self.jobs:,} jobs are done after {self.seconds['work']:.1f} s"
            f" ({_rate(self.jobs, self.seconds['work'])})"
        )
        slots = " and ".join(f"{number:,}" for number in fleet.settled.values())
        printer.line(f"Spark's slots report that they settled {slots} of these attempts")

    def backfill(self) -> None:
        from penstock.tools.demo.spark.session_and_threads import SLOTS, DemoThread
        from penstock.worker import Worker

        printer = self.printer
        printer.step("A backfill: a Spark task over a range of days, one job per day.")
        first, last = tasks.FIRST_DAY, tasks.LAST_DAY
        printer.line(f'takings.backfill("{first}", "{last}", max_running=2)', "cyan")
        began = time.monotonic()
        filled = tasks.takings.backfill(first, last, max_running=2)
        with signals_deferred():
            worker = Worker(tasks.app, queues=[tasks.takings.queue], threads=SLOTS)
            self.threads.append(DemoThread(worker))

        def ended() -> int:
            return sum(state in ENDED for state in filled.states().values())

        printer.line("run by a worker in this process, which has a Spark session already")
        with printer.busy("running the backfill"):
            self.wait(lambda: ended() == len(filled), "the backfill", ended)
        self._took("backfill", began)
        for line in str(filled).splitlines():
            printer.line(line)
        self.cents_of_days = sum(handle.result(timeout=60) for handle in filled.handles.values())
        self.stop()

    def export(self, spark: SparkSession) -> None:
        from penstock.spark.pipelines.fill_lake import fill_lake

        printer = self.printer
        printer.step("Export the history to a lake: Delta tables, every row once.")
        printer.line(f"penstock pipeline run --lake {self.lake}", "cyan")
        began = time.monotonic()
        with printer.busy("exporting the history"):
            filled = fill_lake(spark, self.lake)
        self._took("lake", began)
        rows = ", ".join(f"{number:,} of {table}" for table, number in filled.taken.items())
        size = sum(path.stat().st_size for path in self.lake.rglob("*.parquet")) / _MEGA
        printer.line(
            f"rows: {rows}, in {filled.export_seconds:.0f} s, {size:,.0f} MB; rollups by minute"
            f" in another {filled.rollup_seconds:.0f} s"
        )

    def report(self) -> None:
        from penstock.spark.pipelines.lake.lake import Lake
        from penstock.spark.pipelines.report.formatting import count_text, seconds_text
        from penstock.spark.pipelines.report.page import page
        from penstock.spark.pipelines.report.queries import query_report
        from penstock.spark.pipelines.report.rollup_source import LakeRollups

        printer = self.printer
        printer.step("Write a report: one page with plots; some of its figures:")
        began = time.monotonic()
        with printer.busy("computing the report"):
            answers = query_report(LakeRollups(Lake(self.lake)))
        answers.made_at, answers.source, answers.where = time.time(), "lake", str(self.lake)
        self.page.write_text(page(answers), encoding="utf-8")
        self._took("report", began)
        total = answers.total
        printer.line(
            f"{count_text(total['jobs'])} jobs in {count_text(total['attempts'])} attempts,"
            f" {count_text(total['failed'])} failed"
        )
        printer.line(
            f"median wait {seconds_text(total['wait_p50'])} (the queue was paused at first),"
            f" median run {seconds_text(total['run_p50'])}"
        )
        for failure in answers.failures[:1]:
            printer.line(
                f"{count_text(failure['attempts'])} attempts failed and were retried:"
                f" {failure['signature']}"
            )
        printer.line(str(self.page), "green")

    def prove(self, spark: SparkSession, frame: DataFrame) -> FrameProof:
        from penstock.spark.pipelines.lake.lake import Lake
        from penstock.tools.demo.spark.proof import prove

        printer = self.printer
        printer.step("Check: the rows of the frame against the history in the lake.")
        standing = sum(count.total for count in self.broker.count())
        began = time.monotonic()
        with printer.busy("comparing them"):
            proof = prove(spark, frame, Lake(self.lake), standing, self.cents_of_days)
        self._took("proof", began)
        local = sum(n for worker, n in proof.ended_by.items() if worker.startswith(self.local))
        slots = sum(proof.ended_by.values()) - local
        facts = (
            ("rows", proof.rows, "of the frame"),
            ("ended once", proof.once, "with the right result"),
            ("lost", proof.lost, ""),
            ("ended twice", proof.twice, ""),
            ("retried", proof.retried, "failed attempts that the retry policy repeated"),
            ("local worker", local, "jobs"),
            ("Spark's slots", slots, "jobs"),
        )
        for name, number, note in facts:
            printer.line(f"{name:<14}{number:>9,}  {note}".rstrip())
        printer.line(
            f"the sum of all orders is {proof.cents / 100:,.2f} by the jobs, and"
            f" {proof.cents_of_days / 100:,.2f} by the backfill"
        )
        sentence = "Every row of the frame ended exactly once."
        printer.line(
            sentence if proof.holds else "THE CHECK FAILED.", "green" if proof.holds else "red"
        )
        return proof

    def wait(self, done: Callable[[], bool], what: str, progress: Callable[[], int]) -> None:
        wait_until(done, what, self._check, progress, _PATIENCE)

    def _check(self, what: str) -> None:
        if self.worker is not None:
            self.worker.check(what)
        for thread in self.threads:
            thread.check(what)

    def _took(self, step: str, began: float) -> None:
        self.seconds[step] = round(time.monotonic() - began, 2)


def _rate(number: int, seconds: float) -> str:
    return f"{number / max(seconds, 0.01):,.0f} a second"


def run_demo(jobs: int, *, json: bool = False) -> int:
    """Run the demo with a frame of so many rows: 0 if each row ended once, else 1."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    printer = StepPrinter(silent=json)
    demo = SparkDemo(printer, folder, jobs)
    began = time.monotonic()
    with using_folder(folder), use_store(demo.url, None):
        try:
            proof = demo.run()
        except KeyboardInterrupt:
            output.print_note(
                f"stopped; nothing runs any more, and what was written so far is in {folder}"
            )
            raise
        finally:
            tasks.app.close()
    if json:
        output.print_json(
            {
                **msgspec.structs.asdict(proof),
                "holds": proof.holds,
                "seconds": demo.seconds,
                "store": demo.url,
                "lake": str(demo.lake),
                "page": str(demo.page),
            }
        )
    printer.step(f"That took {time.monotonic() - began:.0f} seconds. Look around:")
    printer.line(f"open {demo.page} in a browser", "green")
    program = output.program()
    for words in (
        f"pipeline report --lake {demo.lake} --url {demo.url}",
        f"find task:{tasks.takings.name} --url {demo.url}",
        f"history --url {demo.url}",
    ):
        printer.line(f"{program} {words}", "cyan")
    printer.line("DuckDB, Polars and others read the lake's Delta tables; in DuckDB:")
    printer.line(f"from delta_scan('{demo.lake}/attempts') limit 5;", "cyan")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MEGA
    printer.line(f"All of it is {size:,.0f} MB; delete it with rm -r {folder}")
    return 0 if proof.holds else 1
