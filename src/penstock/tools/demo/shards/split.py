"""A store that is split and merged while jobs run: a producer, a worker, a mover, and their kills.

The mover is `penstock shards`, the worker `penstock worker`, each a process of its own; they are
killed in the middle of a move. The producer is a thread: it sends again what was not answered.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from penstock.broker.shard_map import text_of_buckets
from penstock.brokers import open_shards
from penstock.brokers.sharded.resharding import ShardState
from penstock.errors import PenstockError, StoreUnreachable, UnknownOutcome
from penstock.job import State
from penstock.testing.checker import Verdict, check_store
from penstock.tools.demo.proof import whole_history
from penstock.tools.demo.shards import tasks
from penstock.tools.demo.worker_process import WorkerProcess, signals_deferred, wait_until

RUNNING = 3  # of the queue orders, on all shards together
_CUSTOMERS = 8
_SKUS = 4
_TOLERANCE = 0.1
_PAUSE = 0.05
_MOST_SECONDS = 1200  # ten times what a move takes on a busy machine


class SplitVerdict(msgspec.Struct, frozen=True):
    """What became of the jobs, and of their order."""

    accepted: int
    history: Verdict
    out_of_order: list[str]  # jobs that began before an earlier one of their key had ended
    killed: int

    @property
    def holds(self) -> bool:
        return self.history.ok and not self.out_of_order


class Split:
    """Shards of SQLite files in one folder; the first has everything."""

    def __init__(self, folder: Path, first: str, *, seed: int = 0) -> None:
        self.folder = folder
        self.file = folder / "shards.toml"
        self.url = f"shards:///{self.file}"
        self.killed = 0
        self.accepted: set[str] = set()
        self._chance = random.Random(seed)  # noqa: S311  no secret
        self._over = threading.Event()
        self._producer = threading.Thread(target=self._produce)
        self._worker: WorkerProcess | None = None
        self._file_of(first)

    def start(self) -> None:
        """Set the limit, begin to send jobs, and start a worker."""
        tasks.app.limit("orders", running=RUNNING, author="demo")
        options = ("--processes", "2", "--threads", "4")
        with signals_deferred():
            self._worker = WorkerProcess(
                tasks.__name__, self.url, self.folder / "worker.log", *options
            )
        self._producer.start()
        self._wait(lambda: bool(self._children()), "a worker")

    def name(self, shard: str) -> None:
        """Name a new, empty shard, and have it join."""
        self._file_of(*self.shards(), shard)
        self._run("add", shard)

    def shards(self) -> list[str]:
        return [line.split()[0] for line in self.file.read_text(encoding="utf-8").splitlines()[1:]]

    def move(self, buckets: Collection[int], to: str, *, kills: int = 0, busy: float = 0.5) -> None:
        """Move buckets; the mover, or a child of the worker, is killed so often in the middle."""
        words = ("move", "--buckets", text_of_buckets(buckets), "--to", to, "--busy", str(busy))
        for _ in range(kills):
            mover = self._start(*words)
            line = "" if mover.stdout is None else mover.stdout.readline()
            if "of" in line and self._chance.random() < 0.5:
                self._kill_a_child()
            mover.kill()
            mover.communicate()
            self.killed += 1
        self._run(*words)

    def states(self) -> list[ShardState]:
        """Where the buckets are."""
        look = open_shards(self.url)
        try:
            return look.states()
        finally:
            look.close()

    def left(self) -> int:
        return sum(count.total for count in tasks.app.broker.count())

    def calm(self) -> SplitVerdict:
        """Send no more jobs, wait for the last one, and check the history of all shards."""
        self._over.set()
        self._producer.join()
        self._wait(lambda: self.left() == 0, "the end of all jobs", self.left)
        verdict = check_store(tasks.app.broker, self.accepted, tolerance=_TOLERANCE)
        return SplitVerdict(len(self.accepted), verdict, self._out_of_order(), self.killed)

    def end(self) -> None:
        """Stop everything; safe to call again."""
        self._over.set()
        if self._producer.is_alive():
            self._producer.join()
        if self._worker is not None:
            self._worker.stop()

    def _file_of(self, *shards: str) -> None:
        lines = ["[shards]", *(f'{name} = "sqlite:///{name}.db"' for name in shards), ""]
        new = self.file.with_suffix(".new")
        new.write_text("\n".join(lines), encoding="utf-8")
        new.replace(self.file)  # whoever reads it meanwhile reads all of it

    def _start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "penstock", "shards", *words, "--url", self.url]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )

    def _run(self, *words: str) -> None:
        mover = self._start(*words)
        said, _ = mover.communicate(timeout=_MOST_SECONDS)
        if mover.returncode:
            raise PenstockError(f"penstock shards {' '.join(words)} failed: {said}")

    def _children(self) -> dict[int, int]:
        return {row.pid: row.running for row in tasks.app.broker.workers() if row.alive}

    def _kill_a_child(self) -> None:
        children = self._children()
        if children:
            busiest = max(children, key=lambda pid: children[pid])
            os.kill(busiest, signal.SIGKILL)
            self.killed += 1

    def _produce(self) -> None:
        number = 0
        while not self._over.wait(_PAUSE):
            number += 1
            jobs: list[Any] = [tasks.pack.job(number) for _ in range(2)]
            customer = f"customer-{self._chance.randrange(_CUSTOMERS)}"
            jobs.append(tasks.visit.options(key=customer).job(number))
            sku = f"sku-{self._chance.randrange(_SKUS)}"
            jobs.append(tasks.pack.options(unique=sku, tags={"unique": sku}).job(number))
            for job in jobs:
                self._send(job)

    def _send(self, job: Any) -> None:
        """Send a job until the answer has come: sent again it is the same job."""
        while True:
            try:
                self.accepted.add(tasks.app.enqueue([job])[0].id)
            except (StoreUnreachable, UnknownOutcome):
                time.sleep(_PAUSE)
            else:
                return

    def _out_of_order(self) -> list[str]:
        """Jobs of a key that began before another of the same key had ended.

        Of a customer in the order in which they were enqueued, of a unique key in any.
        """
        began: dict[str, float] = {}
        ended: dict[str, float] = {}
        made: dict[str, list[tuple[float, str]]] = {}
        for row in whole_history(tasks.app.broker):
            if row.kind != "attempt" or row.job is None:
                continue
            if row.started_at is not None:
                began[row.job] = min(began.get(row.job, row.started_at), row.started_at)
            key = row.key or row.tags.get("unique")
            if row.state is State.SUCCEEDED and key is not None:
                ended[row.job] = row.at
                at = row.enqueued_at if row.key else began[row.job]
                made.setdefault(key, []).append((at or 0.0, row.job))
        return [
            job
            for jobs in made.values()
            for (_, before), (_, job) in pairwise(sorted(jobs))
            if began[job] < ended[before] - _TOLERANCE
        ]

    def _wait(
        self, done: Callable[[], bool], what: str, progress: Callable[[], object] = lambda: None
    ) -> None:
        wait_until(done, what, self._check, progress)

    def _check(self, what: str) -> None:
        if self._worker is not None:
            self._worker.check(what)
