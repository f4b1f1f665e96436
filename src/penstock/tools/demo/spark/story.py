"""The demo on Spark, told in steps: a frame, its jobs, a backfill, a lake, a report, the proof.

Its store is a SQLite file: that needs no server and stays to be looked at. It leaves everything
behind that it made.
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
from penstock.tools.demo.demo_worker import BesideWorker, unbroken, wait
from penstock.tools.demo.narrator import Narrator
from penstock.tools.demo.place import placed
from penstock.tools.demo.spark import tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.fleet.driver import Fleet
    from penstock.tools.demo.spark.demo_processes import InThread
    from penstock.tools.demo.spark.proof import FrameProof

_TARGET = "penstock.tools.demo.spark.tasks"
_QUEUE = "orders"
_MEGA = 1_000_000
_PATIENCE = 300.0  # without any progress: Spark on a busy machine takes a minute for a beginning


class SparkStory:
    """One telling."""

    def __init__(self, narrator: Narrator, folder: Path, jobs: int) -> None:
        self.narrator = narrator
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self.lake = folder / "lake"
        self.page = folder / "report.html"
        self.jobs = jobs
        self.seconds: dict[str, float] = {}  # by step
        self.cents_of_days = 0
        self.local = ""  # what the names of the local worker's processes begin with
        self.worker: BesideWorker | None = None
        self.threads: list[InThread] = []

    @property
    def broker(self) -> Broker:
        return tasks.app.broker

    def tell(self) -> FrameProof:
        """All of it; whatever it started has ended when it returns or raises."""
        from penstock.tools.demo.spark.demo_processes import running_session

        self.narrator.step("Spark starts on this machine; no cluster is needed.")
        began = time.monotonic()
        with ExitStack() as stack:
            with self.narrator.busy("Java starts, and Python with it"):
                spark = stack.enter_context(running_session(self.url, self.folder))
            self._took("session", began)
            self.narrator.tell(
                f"Spark {spark.version} after {self.seconds['session']:.0f} s; its own log is in"
            )
            self.narrator.tell(str(self.folder / "spark.log"), "dim")
            try:
                frame = self.enqueue(spark)
                self.work(self.start_workers(spark))
                self.backfill()
                self.export(spark)
                self.report(spark)
                return self.prove(spark, frame)
            finally:
                self.stop(now=True)

    def stop(self, *, now: bool = False) -> None:
        """End what runs beside this; safe to call again."""
        try:
            for each in self.threads:
                each.stop(now=now)
            self.threads.clear()
        finally:
            if self.worker is not None:
                self.worker.stop()
                self.worker = None

    def enqueue(self, spark: SparkSession) -> DataFrame:
        narrator = self.narrator
        narrator.step(f"A frame of {self.jobs:,} orders: each row becomes a job.")
        place = str(self.folder / tasks.ORDERS)
        with narrator.busy("the frame is written as Parquet files, a folder per day"):
            tasks.orders(spark, self.jobs).write.partitionBy("day").parquet(place)
            frame = spark.read.parquet(place)
        # Held back until all workers are there: else the first of them would have run the most.
        self.broker.put(
            Rule(RuleKind.PAUSE, queue=_QUEUE, author="you", reason="workers are starting")
        )
        narrator.tell('orders.write.format("penstock").option("task", "…:price")', "cyan")
        narrator.tell('      .mode("append").save()', "cyan")
        began = time.monotonic()
        with narrator.busy("rows become jobs"):
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
        narrator.tell(
            f"{stored:,} jobs are stored after {self.seconds['enqueue']:.1f} s"
            f" ({_rate(stored, self.seconds['enqueue'])}): all of them, or none"
        )
        return frame

    def start_workers(self, spark: SparkSession) -> Fleet:
        from penstock.spark.fleet.driver import Fleet
        from penstock.tools.demo.spark.demo_processes import SLOTS, InThread

        narrator = self.narrator
        narrator.step("Two kinds of workers take jobs from one queue: local ones, and Spark's.")
        options = ("--queues", _QUEUE, "--processes", "1")
        narrator.tell(f"penstock worker {_TARGET} {' '.join(options)}", "cyan")
        narrator.tell(f"penstock spark-worker {_TARGET} --slots {SLOTS}", "cyan")
        log = self.folder / "worker.log"
        with unbroken():
            self.worker = BesideWorker(_TARGET, self.url, log, *options)
            self.local = f"{socket.gethostname()}-{self.worker.pid}-"
            fleet = Fleet(spark, _TARGET, SLOTS)
            self.threads.append(InThread(fleet))

        def at_work() -> int:
            return sum(row.alive for row in self.broker.workers())

        with narrator.busy("they start"):
            self.wait(lambda: at_work() > SLOTS, "workers", at_work)
        narrator.tell("the queue was paused until all of them were there; now, in one write:")
        narrator.tell(f"penstock resume {_QUEUE}", "cyan")
        return fleet

    def work(self, fleet: Fleet) -> None:
        narrator = self.narrator
        self.broker.clear(Rule, rule_id(RuleKind.PAUSE, queue=_QUEUE), author="you")
        began = time.monotonic()
        bar = narrator.bar(self.jobs, "jobs have ended")

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
        narrator.tell(
            f"{self.jobs:,} jobs are done after {self.seconds['work']:.1f} s"
            f" ({_rate(self.jobs, self.seconds['work'])}), all of them durable"
        )
        slots = " and ".join(f"{number:,}" for number in fleet.settled.values())
        narrator.tell(f"by their own word, Spark's slots settled {slots} attempts of these")

    def backfill(self) -> None:
        from penstock.tools.demo.spark.demo_processes import SLOTS, InThread
        from penstock.worker import Worker

        narrator = self.narrator
        narrator.step("A backfill: a Spark task over a range of days, a job for each of them.")
        first, last = tasks.FIRST_DAY, tasks.LAST_DAY
        narrator.tell(f'takings.backfill("{first}", "{last}", max_running=2)', "cyan")
        began = time.monotonic()
        filled = tasks.takings.backfill(first, last, max_running=2)
        with unbroken():
            worker = Worker(tasks.app, queues=[tasks.takings.queue], threads=SLOTS)
            self.threads.append(InThread(worker))

        def ended() -> int:
            return sum(state in ENDED for state in filled.states().values())

        narrator.tell("worked by a thread of this process, which has a Spark session already")
        with narrator.busy("they run"):
            self.wait(lambda: ended() == len(filled), "the backfill", ended)
        self._took("backfill", began)
        for line in str(filled).splitlines():
            narrator.tell(line)
        self.cents_of_days = sum(handle.result(timeout=60) for handle in filled.handles.values())
        self.stop()

    def export(self, spark: SparkSession) -> None:
        from penstock.spark.pipelines.datasets.build import build
        from penstock.spark.pipelines.lake.export import export
        from penstock.spark.pipelines.lake.lake import Lake

        narrator = self.narrator
        narrator.step("The history goes to a lake: Parquet files, every row once.")
        narrator.tell(f"penstock pipeline run --lake {self.lake}", "cyan")
        began = time.monotonic()
        with narrator.busy("history is taken to the lake"), Lake(self.lake).writing() as writing:
            taken = export(spark, writing, lambda _table, _rows: None).taken
            self._took("export", began)
            build(spark, writing, lambda _name, _days: None)
        self._took("lake", began)
        rows = ", ".join(f"{number:,} of {table}" for table, number in taken.items())
        size = sum(path.stat().st_size for path in self.lake.rglob("*.parquet")) / _MEGA
        narrator.tell(
            f"rows: {rows}, in {self.seconds['export']:.0f} s, {size:,.0f} MB; and counted by the"
            f" minute, in {self.seconds['lake'] - self.seconds['export']:.0f} s more"
        )

    def report(self, spark: SparkSession) -> None:
        from penstock.spark.pipelines.lake.lake import Lake
        from penstock.spark.pipelines.report.formatting import count_text, seconds_text
        from penstock.spark.pipelines.report.page import page
        from penstock.spark.pipelines.report.queries import query_report
        from penstock.spark.pipelines.report.store_or_lake import lake_frames

        narrator = self.narrator
        narrator.step("The report: one page with plots, and these figures among others.")
        began = time.monotonic()
        with narrator.busy("Spark works it out"):
            answers = query_report(
                lake_frames(spark, Lake(self.lake)), lambda _what, _number, _of: None
            )
        answers.made_at, answers.source, answers.where = time.time(), "lake", str(self.lake)
        self.page.write_text(page(answers), encoding="utf-8")
        self._took("report", began)
        total = answers.total
        narrator.tell(
            f"{count_text(total['jobs'])} jobs in {count_text(total['attempts'])} attempts,"
            f" {count_text(total['failed'])} failed"
        )
        narrator.tell(
            f"median wait {seconds_text(total['wait_p50'])} (they were held back at first),"
            f" median run {seconds_text(total['run_p50'])}"
        )
        for failure in answers.failures[:1]:
            narrator.tell(
                f"{count_text(failure['attempts'])} attempts went wrong and were made again:"
                f" {failure['signature']}"
            )
        narrator.tell(str(self.page), "green")

    def prove(self, spark: SparkSession, frame: DataFrame) -> FrameProof:
        from penstock.spark.pipelines.lake.lake import Lake
        from penstock.tools.demo.spark.proof import prove

        narrator = self.narrator
        narrator.step("The proof: the rows of the frame beside those of the lake.")
        standing = sum(count.total for count in self.broker.count())
        began = time.monotonic()
        with narrator.busy("Spark compares them"):
            proof = prove(spark, frame, Lake(self.lake), standing, self.cents_of_days)
        self._took("proof", began)
        local = sum(n for worker, n in proof.ended_by.items() if worker.startswith(self.local))
        slots = sum(proof.ended_by.values()) - local
        facts = (
            ("rows", proof.rows, "of the frame"),
            ("ended once", proof.once, "with the answer that the row asks for"),
            ("lost", proof.lost, ""),
            ("ended twice", proof.twice, ""),
            ("retried", proof.retried, "failed at first, and tried again by their rule"),
            ("local worker", local, "jobs"),
            ("Spark's slots", slots, "jobs"),
        )
        for name, number, note in facts:
            narrator.tell(f"{name:<14}{number:>9,}  {note}".rstrip())
        narrator.tell(
            f"all orders come to {proof.cents / 100:,.2f} by the jobs, and to"
            f" {proof.cents_of_days / 100:,.2f} by the backfill"
        )
        sentence = "Every row of the frame ended exactly once."
        narrator.tell(
            sentence if proof.holds else "THE PROOF FAILED.", "green" if proof.holds else "red"
        )
        return proof

    def wait(self, done: Callable[[], bool], what: str, moved: Callable[[], int]) -> None:
        wait(done, what, self._check, moved, _PATIENCE)

    def _check(self, what: str) -> None:
        if self.worker is not None:
            self.worker.check(what)
        for each in self.threads:
            each.check(what)

    def _took(self, step: str, began: float) -> None:
        self.seconds[step] = round(time.monotonic() - began, 2)


def _rate(number: int, seconds: float) -> str:
    return f"{number / max(seconds, 0.01):,.0f} a second"


def tell(jobs: int, *, json: bool = False) -> int:
    """Tell it, with a frame of so many rows; 0 if the proof holds, else 1."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    narrator = Narrator(silent=json)
    story = SparkStory(narrator, folder, jobs)
    began = time.monotonic()
    with placed(folder), use_store(story.url, None):
        try:
            proof = story.tell()
        except KeyboardInterrupt:
            output.print_note(
                f"stopped; everything has ended, and what was made so far is in {folder}"
            )
            raise
        finally:
            tasks.app.close()
    if json:
        output.print_json(
            {
                **msgspec.structs.asdict(proof),
                "holds": proof.holds,
                "seconds": story.seconds,
                "store": story.url,
                "lake": str(story.lake),
                "page": str(story.page),
            }
        )
    narrator.step(f"That took {time.monotonic() - began:.0f} seconds. Look around:")
    narrator.tell(f"open {story.page} in a browser", "green")
    program = output.program()
    for words in (
        f"pipeline report --lake {story.lake} --url {story.url}",
        f"find task:{tasks.takings.name} --url {story.url}",
        f"history --url {story.url}",
    ):
        narrator.tell(f"{program} {words}", "cyan")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / _MEGA
    narrator.tell(f"All of it is {size:,.0f} MB: rm -r {folder} takes it away.")
    return 0 if proof.holds else 1
