"""`penstock demo`, step by step: jobs, a worker, a kill -9, and a check that no job was lost.

The store stays, so that the user can look around in it.
"""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.settings import mask
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.brokers import demo_url
from penstock.cli import output
from penstock.cli.flows import drawn
from penstock.cli.store_choice import use_store
from penstock.errors import Refused
from penstock.flows.signals import wait_for
from penstock.job import State
from penstock.operate.to_json import call_text
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.run.error_text import headline
from penstock.tools.demo import tasks
from penstock.tools.demo.demo_folder import using_folder
from penstock.tools.demo.proof import Proof, prove
from penstock.tools.demo.step_printer import StepPrinter
from penstock.tools.demo.worker_process import PATIENCE, WorkerProcess, signals_deferred, wait_until

_CARD = "4242 4242 4242 4242"
_THREADS = 4


class Demo:
    """One run of the demo."""

    def __init__(
        self, printer: StepPrinter, folder: Path, thumbnails: int, url: str | None = None
    ) -> None:
        self.printer = printer
        self.folder = folder
        self.on_server = url is not None
        self.url = url or f"sqlite:///{folder / 'jobs.db'}"
        self.thumbnails = thumbnails
        self.enqueued = 0
        self.killed: set[int] = set()
        self.worker: WorkerProcess | None = None

    @property
    def broker(self) -> Broker:
        return tasks.app.broker

    def run(self) -> Proof:
        self.enqueue()
        self.start_worker()
        self.kill_a_child()
        self.watch_the_rest()
        self.pause()
        self.retry_by_hand()
        self.flow()
        self.stop_worker()
        return self.prove()

    def enqueue(self) -> None:
        printer = self.printer
        if self.on_server:
            printer.step("Enqueue jobs of several kinds into a new store on this server.")
            printer.line(mask(self.url), "dim")
        else:
            printer.step("Enqueue jobs of several kinds into one SQLite file; no server is needed.")
            printer.line(str(self.folder / "jobs.db"), "dim")
        began = time.perf_counter()
        batch = tasks.thumbnail.enqueue_many([(number,) for number in range(self.thumbnails)])
        seconds = time.perf_counter() - began
        printer.line(f"{batch.count:,} thumbnails in bulk, in {1000 * seconds:.0f} ms")
        others = [tasks.report.job(20), tasks.charge.job(1007, _CARD)]
        others += [tasks.unlucky.job(f"reader-{number}@example.org") for number in range(5)]
        others += [
            tasks.letter.options(delay=2).job(f"later-{number}@example.org") for number in range(20)
        ]
        tasks.app.enqueue(others)
        self.enqueued = batch.count + len(others)
        printer.line("in one transaction: 20 letters due in two seconds, 5 that fail at first,")
        printer.line("a slow report, and a payment whose provider is down")
        wrong: dict[str, Any] = {"order": 1008, "card": _CARD, "currency": "EUR"}
        try:
            tasks.charge.enqueue(**wrong)
        except Refused as refusal:
            printer.line("a call with wrong arguments is refused before anything is stored:")
            printer.line(f"  {refusal}", "red")

    def start_worker(self) -> None:
        self.printer.step("Start a worker: a supervisor and two child processes.")
        options = ("--processes", "2", "--threads", str(_THREADS))
        log = self.folder / "worker.log"
        with signals_deferred():
            self.worker = WorkerProcess("penstock.tools.demo.tasks", self.url, log, *options)
        self.wait(lambda: len(self.children()) == 2, "two children")
        for pid in self.children():
            self.printer.line(f"child process {pid} is ready")

    def children(self) -> dict[int, int]:
        """The live child processes, each with the number of jobs that it holds."""
        return {row.pid: row.running for row in self.broker.workers() if row.alive}

    def left(self) -> int:
        return sum(count.total for count in self.broker.count())

    def kill_a_child(self) -> None:
        bar = self.printer.bar(self.enqueued, "jobs have ended")
        target = self.enqueued * 2 // 5

        def far_enough() -> bool:
            done = self.enqueued - self.left()
            bar.at(done)
            return done >= target

        try:
            self.wait(far_enough, "two fifths of the jobs")
        finally:
            bar.close()
        before = self.children()
        busiest = max(before, key=lambda pid: before[pid])
        os.kill(busiest, signal.SIGKILL)
        self.killed.add(busiest)
        self.printer.step(
            f"kill -9 {busiest}: a child process dies while it holds {before[busiest]} jobs."
        )
        self.wait(lambda: bool(self.children().keys() - before.keys()), "a new child")
        fresh = ", ".join(str(pid) for pid in self.children().keys() - before.keys())
        self.printer.line(f"the supervisor put its jobs back and started process {fresh};")
        self.printer.line("the other child went on working")

    def watch_the_rest(self) -> None:
        self.printer.step("Wait for the other jobs.")
        bar = self.printer.bar(self.enqueued, "jobs have ended")

        def nothing_left() -> bool:
            left = self.left()
            bar.at(self.enqueued - left)
            return left == 0

        try:
            self.wait(nothing_left, "the end of all jobs")
        finally:
            bar.close()
        self.printer.line("no job is waiting or running")

    def pause(self) -> None:
        printer, broker = self.printer, self.broker
        printer.step("Pause a queue: one write, however many jobs are in it.")
        began = time.perf_counter()
        broker.put(Rule(RuleKind.PAUSE, queue="mail", author="you", reason="mail is down"))
        printer.line(f"penstock pause mail   took {1000 * (time.perf_counter() - began):.1f} ms")
        handles = [tasks.letter.enqueue(f"held-{number}@example.org") for number in range(25)]
        self.enqueued += len(handles)
        held = sum(count.paused for count in broker.count())
        printer.line(f"{held} new letters do not start. penstock why {handles[0].id}")
        printer.line(f"  {broker.why(handles[0].id).sentence}", "magenta")
        broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"), author="you")
        began = time.perf_counter()
        self.wait(lambda: self.left() == 0, "the letters that were paused")
        seconds = time.perf_counter() - began
        printer.line(
            f"penstock resume mail   and all {held} are sent, {1000 * seconds:.0f} ms later"
        )

    def retry_by_hand(self) -> None:
        printer, broker = self.printer, self.broker
        printer.step("A failed job is kept with its error, and can be retried.")
        [failed] = broker.find(Filter(state=(State.FAILED,))).jobs
        printer.line(f"penstock find state:failed   {failed.task}({call_text(failed.body)})")
        printer.line(f"  {headline(failed.error)}", "red")
        (self.folder / tasks.PROVIDER).touch()
        # Secrets are deleted when a job ends: whoever retries it gives them again.
        reason, secrets = "the provider is up again", {"card": _CARD}
        broker.act("retry", [failed.id], author="you", reason=reason, secrets=secrets)
        printer.line(f"{reason}: penstock retry {failed.id} --secret card")
        result = tasks.app.handle(failed.id).result(timeout=PATIENCE)
        printer.line(f"  {result}", "green")

    def flow(self) -> None:
        printer, broker = self.printer, self.broker
        printer.step("A flow: one job needs forty others and the approval of a person.")
        tasks.app.limit(task=tasks.measure, running=4, author="you")
        printer.line(
            f"penstock limit --task {tasks.measure.name} --running 4   for all workers together"
        )
        pictures = tasks.measure.map([f"picture-{number}.png" for number in range(40)])
        approval = wait_for("album-approved", timeout=600, returns=str)
        last = tasks.album.job(pictures.output, approval.output).enqueue()
        self.enqueued += 42
        most = 0

        def all_measured() -> bool:
            nonlocal most
            counts = broker.count()
            most = max(most, *(c.running for c in counts if c.task == tasks.measure.name), 0)
            return not any(c.total for c in counts if c.task == tasks.measure.name)

        self.wait(all_measured, "forty pictures")
        printer.line(f"at most 4 ran at a time (seen: {most}). penstock flow {last.id}")
        stored = broker.flow(last.id)
        for line in () if stored is None else drawn(broker, stored):
            printer.print(line)
        printer.line("no worker is blocked by the wait. penstock signal album-approved Ada")
        tasks.app.signal("album-approved", "Ada", author="you")
        printer.line(f"  {last.result(timeout=PATIENCE)}", "green")

    def stop_worker(self) -> None:
        if self.worker is not None:
            self.worker.stop()

    def prove(self) -> Proof:
        printer, broker = self.printer, self.broker
        proof = prove(broker, self.enqueued, self.folder / tasks.STARTS, self.killed)
        printer.step(
            "Check: the history of the store against a file that the tasks wrote themselves."
        )
        facts = (
            ("enqueued", proof.enqueued, ""),
            ("ended", proof.ended, "jobs with an end in the history"),
            ("lost", proof.lost, ""),
            ("settled twice", proof.settled_twice, "writes of a dead worker are rejected"),
            (
                "ran again",
                proof.ran_again,
                "jobs that the killed process had started: run again, settled once",
            ),
            ("retried", proof.retried, "failed attempts that the retry policy repeated"),
            ("succeeded", proof.succeeded, "one of them, the payment, after a retry by hand"),
        )
        for name, number, note in facts:
            printer.line(f"{name:<14}{number:>7,}  {note}")
        sentence = "Nothing was lost, nothing was settled twice."
        printer.line(
            sentence if proof.holds else "THE CHECK FAILED.", "green" if proof.holds else "red"
        )
        printer.step("The counts now, and the last events.")
        counts = broker.count()
        if counts:
            printer.print(output.counts_table(counts, by_task=False))
        else:
            printer.line("penstock count   no job is waiting, running or failed")
        for event in broker.history(after=None, limit=5):
            printer.print(output.event_line(event))
        return proof

    def wait(self, done: Callable[[], bool], what: str) -> None:
        wait_until(done, what, self._check)

    def _check(self, what: str) -> None:
        if self.worker is not None:
            self.worker.check(what)


def run_demo(jobs: int, *, url: str | None = None, json: bool = False) -> int:
    """Run the demo with so many jobs in bulk: 0 if no job was lost or settled twice, else 1.

    In a store of its own: a file, or, with the URL of a server in Redis, keys under a new prefix.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    printer = StepPrinter(silent=json)
    demo = Demo(printer, folder, jobs, None if url is None else demo_url(url, folder.name))
    began = time.monotonic()
    with using_folder(folder), use_store(demo.url, None):
        try:
            proof = demo.run()
        finally:
            demo.stop_worker()
            tasks.app.close()
    if json:
        figures = {**msgspec.structs.asdict(proof), "holds": proof.holds, "store": mask(demo.url)}
        output.print_json(figures)
    printer.step(f"That took {time.monotonic() - began:.0f} seconds. The store stays; look around:")
    for words in ("find task:penstock.tools.demo.tasks:unlucky", "history", "doctor"):
        printer.line(f"{output.program()} {words} --url {shlex.quote(mask(demo.url))}", "cyan")
    return 0 if proof.holds else 1
