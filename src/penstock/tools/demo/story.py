"""The demo, told in steps: real jobs, a real worker, a real kill -9, and the proof at the end.

It leaves its store behind, so that the reader can look around in it.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
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
from penstock.tools.demo.demo_worker import PATIENCE, BesideWorker, unbroken, wait
from penstock.tools.demo.narrator import Narrator
from penstock.tools.demo.place import placed
from penstock.tools.demo.proof import Proof, prove

_THREADS = 4


class Story:
    """One telling."""

    def __init__(self, narrator: Narrator, folder: Path, thumbnails: int) -> None:
        self.narrator = narrator
        self.folder = folder
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self.thumbnails = thumbnails
        self.enqueued = 0
        self.killed: set[int] = set()
        self.worker: BesideWorker | None = None

    @property
    def broker(self) -> Broker:
        return tasks.app.broker

    def tell(self) -> Proof:
        """All of it."""
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
        narrator = self.narrator
        narrator.step("Jobs of several kinds are stored: one SQLite file, no server.")
        narrator.tell(str(self.folder / "jobs.db"), "dim")
        began = time.perf_counter()
        batch = tasks.thumbnail.enqueue_many([(number,) for number in range(self.thumbnails)])
        seconds = time.perf_counter() - began
        narrator.tell(f"{batch.count:,} thumbnails, in bulk, in {1000 * seconds:.0f} ms")
        others = [tasks.report.job(20), tasks.charge.job(1007, "4242 4242 4242 4242")]
        others += [tasks.unlucky.job(f"reader-{number}@example.org") for number in range(5)]
        others += [
            tasks.letter.options(delay=2).job(f"later-{number}@example.org") for number in range(20)
        ]
        tasks.app.enqueue(others)
        self.enqueued = batch.count + len(others)
        narrator.tell(
            "20 letters due in two seconds, 5 that will fail at first, a slow report, and"
        )
        narrator.tell("a payment whose provider is down: all of these in one transaction, or none")
        wrong: dict[str, Any] = {"order": 1008, "card": "4242 4242 4242 4242", "currency": "EUR"}
        try:
            tasks.charge.enqueue(**wrong)
        except Refused as refusal:
            narrator.tell("a call that is wrong is refused before anything is written:")
            narrator.tell(f"  {refusal}", "red")

    def start_worker(self) -> None:
        self.narrator.step("A worker starts: a supervisor and two child processes.")
        options = ("--processes", "2", "--threads", str(_THREADS))
        log = self.folder / "worker.log"
        with unbroken():
            self.worker = BesideWorker("penstock.tools.demo.tasks", self.url, log, *options)
        self.wait(lambda: len(self.children()) == 2, "two children")
        for pid in self.children():
            self.narrator.tell(f"process {pid} is there")

    def children(self) -> dict[int, int]:
        """Processes that are alive, each with the number of jobs it holds."""
        return {row.pid: row.running for row in self.broker.workers() if row.alive}

    def left(self) -> int:
        return sum(count.total for count in self.broker.count())

    def kill_a_child(self) -> None:
        bar = self.narrator.bar(self.enqueued, "jobs have ended")
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
        self.narrator.step(f"kill -9 {busiest}: it dies holding {before[busiest]} jobs.")
        self.wait(lambda: bool(self.children().keys() - before.keys()), "a new child")
        fresh = ", ".join(str(pid) for pid in self.children().keys() - before.keys())
        self.narrator.tell(f"the supervisor gave its jobs back and started process {fresh};")
        self.narrator.tell("the other one worked on all the time")

    def watch_the_rest(self) -> None:
        self.narrator.step("The rest is worked off.")
        bar = self.narrator.bar(self.enqueued, "jobs have ended")

        def nothing_left() -> bool:
            left = self.left()
            bar.at(self.enqueued - left)
            return left == 0

        try:
            self.wait(nothing_left, "the end of all jobs")
        finally:
            bar.close()
        self.narrator.tell("nothing waits, nothing runs")

    def pause(self) -> None:
        narrator, broker = self.narrator, self.broker
        narrator.step("A queue is paused: one write, however many jobs wait in it.")
        began = time.perf_counter()
        broker.put(Rule(RuleKind.PAUSE, queue="mail", author="you", reason="mail is down"))
        narrator.tell(f"penstock pause mail   took {1000 * (time.perf_counter() - began):.1f} ms")
        handles = [tasks.letter.enqueue(f"held-{number}@example.org") for number in range(25)]
        self.enqueued += len(handles)
        held = sum(count.paused for count in broker.count())
        narrator.tell(f"{held} new letters are held back. penstock why {handles[0].id}")
        narrator.tell(f"  {broker.why(handles[0].id).sentence}", "magenta")
        broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"), author="you")
        began = time.perf_counter()
        self.wait(lambda: self.left() == 0, "the letters that were held back")
        seconds = time.perf_counter() - began
        narrator.tell(
            f"penstock resume mail   and all {held} are sent, {1000 * seconds:.0f} ms later"
        )

    def retry_by_hand(self) -> None:
        narrator, broker = self.narrator, self.broker
        narrator.step("What failed is kept, with its reason, and can be tried again.")
        [failed] = broker.find(Filter(state=(State.FAILED,))).jobs
        said = headline(failed.error)
        narrator.tell(f"penstock find state:failed   {failed.task}({call_text(failed.body)})")
        narrator.tell(f"  {said}", "red")
        (self.folder / tasks.PROVIDER).touch()
        broker.act("retry", [failed.id], author="you", reason="the provider is up again")
        narrator.tell("the provider is up again: penstock retry state:failed")
        result = tasks.app.handle(failed.id).result(timeout=PATIENCE)
        narrator.tell(f"  {result}", "green")

    def flow(self) -> None:
        narrator, broker = self.narrator, self.broker
        narrator.step("A flow: one job needs forty others, and the word of a person.")
        tasks.app.limit(task=tasks.measure, running=4, author="you")
        narrator.tell(
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
        narrator.tell(f"never more than 4 at a time (seen: {most}); now penstock flow {last.id}")
        stored = broker.flow(last.id)
        for line in () if stored is None else drawn(broker, stored):
            narrator.put(line)
        narrator.tell("nobody waits on a worker. penstock signal album-approved Ada")
        tasks.app.signal("album-approved", "Ada", author="you")
        narrator.tell(f"  {last.result(timeout=PATIENCE)}", "green")

    def stop_worker(self) -> None:
        if self.worker is not None:
            self.worker.stop()

    def prove(self) -> Proof:
        narrator, broker = self.narrator, self.broker
        proof = prove(broker, self.enqueued, self.folder / tasks.WITNESS, self.killed)
        narrator.step(
            "The proof, from the history and from a file that the tasks wrote themselves."
        )
        facts = (
            ("enqueued", proof.enqueued, ""),
            ("ended", proof.ended, "each with a row in the history"),
            ("lost", proof.lost, ""),
            ("settled twice", proof.settled_twice, "every write of a worker is fenced"),
            (
                "ran again",
                proof.ran_again,
                "not settled when the kill came: begun again, settled once",
            ),
            ("retried", proof.retried, "failed at first, and tried again by their rule"),
            ("succeeded", proof.succeeded, "the payment after a retry by hand"),
        )
        for name, number, note in facts:
            narrator.tell(f"{name:<14}{number:>7,}  {note}")
        sentence = "Nothing was lost, nothing was settled twice."
        narrator.tell(
            sentence if proof.holds else "THE PROOF FAILED.", "green" if proof.holds else "red"
        )
        narrator.step("Where jobs stand, and what happened last.")
        counts = broker.count()
        if counts:
            narrator.put(output.counts_table(counts, by_task=False))
        else:
            narrator.tell("penstock count   nothing is waiting, running or failed")
        for event in broker.history(after=None, limit=5):
            narrator.put(output.event_line(event))
        return proof

    def wait(self, done: Callable[[], bool], what: str) -> None:
        wait(done, what, self._check)

    def _check(self, what: str) -> None:
        if self.worker is not None:
            self.worker.check(what)


def tell(jobs: int, *, json: bool = False) -> int:
    """Tell it, with so many jobs in bulk; 0 if the proof holds, else 1."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    narrator = Narrator(silent=json)
    story = Story(narrator, folder, thumbnails=jobs)
    began = time.monotonic()
    with placed(folder), use_store(story.url, None):
        try:
            proof = story.tell()
        finally:
            story.stop_worker()
            tasks.app.close()
    if json:
        figures = {**msgspec.structs.asdict(proof), "holds": proof.holds, "store": story.url}
        output.print_json(figures)
    narrator.step(f"That took {time.monotonic() - began:.0f} seconds. The store is still there:")
    for words in ("find task:penstock.tools.demo.tasks:unlucky", "history", "doctor"):
        narrator.tell(f"{output.program()} {words} --url {story.url}", "cyan")
    return 0 if proof.holds else 1
