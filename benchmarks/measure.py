"""The measurements: what is done with one peer, the same for every one of them.

A job is done when its task has marked it (peers/marks.py) and the store says that nothing is left.
Sizes follow the peer: each grows until a run takes about as long as asked for, so that the slow and
the fast are measured over the same time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from asking import PATIENCE, Asked, Failed
from peers.marks import LAST, MOST_JOBS, Marks
from roster import ROSTER, Entrant

SMALL = 60  # characters: a job of about 100 bytes
LARGE = 2000  # characters: a job of 2 kB
LATENCY_RATE = 20.0
SHORT = 0.050  # seconds of the tasks whose worker is killed, as in peers/work.py
_MOST = MOST_JOBS // 2
_LOOK = 0.005
_AGAIN_SECONDS = 2.0
BUSY_RATE = 100.0  # jobs a second, of what a server costs that is neither idle nor full
_QUIET_SECONDS = 3.0  # until a worker that has started is as quiet as it gets
_ADDED_UP_SECONDS = 1.2  # until the server's counters have what was done


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    runs: int
    seconds: float  # that a run should take
    latency_jobs: int
    fan_out: int
    slow_jobs: int
    kill_jobs: int
    kill_seconds: float  # until a job that was held by a killed worker counts as lost
    raw_rows: int
    bound: float  # seconds until a run is given up
    cost_seconds: float  # idle, and at a fixed rate


FULL = Sizes(
    runs=3,
    seconds=2.0,
    latency_jobs=300,
    fan_out=1000,
    slow_jobs=2000,
    kill_jobs=300,
    kill_seconds=90,
    raw_rows=300_000,
    bound=60,
    cost_seconds=20,
)
QUICK = Sizes(
    runs=1,
    seconds=0.4,
    latency_jobs=40,
    fan_out=100,
    slow_jobs=300,
    kill_jobs=300,
    kill_seconds=45,
    raw_rows=100_000,
    bound=30,
    cost_seconds=2,
)


class Peer:
    """One entrant: its process, its marks, its store and its workers."""

    def __init__(
        self,
        entrant: Entrant,
        *,
        command: list[str],
        stores: Asked,
        folder: Path,
        environment: dict[str, str],
    ) -> None:
        self.entrant = entrant
        self.marks = Marks(folder)
        self._stores = stores
        self._folder = folder
        number = ROSTER.index(entrant)
        self._where: dict[str, Any] = {
            "store": entrant.store,
            "name": entrant.name,
            "number": number,
        }
        self._environment = {
            **environment,
            "BENCH_URL": stores.ask("url", **self._where),
            "BENCH_MARKS": str(folder),
        }
        self._command = command
        self._asked: Asked | None = None
        self.jobs: dict[str, int] = {}  # how many a measurement took, once that is known

    def ask(self, do: str, **request: Any) -> Any:
        """Ask its process, which is started again if it ended."""
        if self._asked is None or not self._asked.alive:
            self._asked = Asked(self._command, self._environment, self._folder / "log")
        return self._asked.ask(do, **request)

    def renew(self) -> None:
        """An empty store, and no marks."""
        self.ask("close")
        self._stores.ask("empty", **self._where)
        self.marks.clear()
        self.ask("open")

    def close(self) -> None:
        """End its process."""
        if self._asked is not None:
            self._asked.close()

    def enqueue(self, task: str, count: int, *, bulk: bool, size: int = SMALL) -> float:
        """Seconds that it took."""
        return self.ask("enqueue", task=task, count=count, size=size, bulk=bulk)

    @contextmanager
    def working(self, kind: str, processes: int = 1) -> Generator[list[subprocess.Popen[bytes]]]:
        """Workers, until the end of the block; then killed, for their store is emptied anyway."""
        environment = self._environment | {"BENCH_KIND": kind}
        running: list[subprocess.Popen[bytes]] = []
        with (self._folder / "workers-log").open("wb") as log:
            try:
                running.extend(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=environment,
                        cwd=self._folder,
                        start_new_session=True,
                    )
                    for command in self.ask("workers", kind=kind, processes=processes)
                )
                yield running
            finally:
                kill(running)

    def wait_ran(
        self,
        count: int,
        bound: float,
        running: list[subprocess.Popen[bytes]],
        *,
        some: int | None = None,
    ) -> None:
        """Until all of the first `count` jobs ran, or `some` of them."""
        wanted = count if some is None else some
        until = time.monotonic() + bound
        while (ran := self.marks.ran_of(count)) < wanted:
            if time.monotonic() > until:
                raise Failed(f"{ran:,} of {wanted:,} jobs within {bound:.0f} s")
            if all(process.poll() is not None for process in running):
                raise Failed(f"its worker ended: {self._last_words()}")
            time.sleep(_LOOK)

    def wait_settled(self, bound: float) -> None:
        """Until its store says that nothing is left."""
        until = time.monotonic() + bound
        while left := self.ask("left"):
            if time.monotonic() > until:
                raise Failed(f"{left:,} jobs ran, and have not ended in the store")
            time.sleep(_LOOK)

    def _last_words(self) -> str:
        text = (self._folder / "workers-log").read_text(encoding="utf-8", errors="replace")
        lines = text.strip().splitlines()
        return lines[-1][-300:] if lines else "without a word"


def kill(running: list[subprocess.Popen[bytes]]) -> None:
    """Kill -9 of workers, with all that they started."""
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def single(peer: Peer, sizes: Sizes) -> float:
    """Enqueues a second, one call and one commit each."""
    return _handed_over(peer, sizes, bulk=False)


def bulk(peer: Peer, sizes: Sizes) -> float:
    """Enqueues a second, by the way in for many."""
    return _handed_over(peer, sizes, bulk=True)


def _handed_over(peer: Peer, sizes: Sizes, *, bulk: bool) -> float:
    def run(count: int) -> float:
        peer.renew()
        seconds = peer.enqueue("nothing", count, bulk=bulk)
        if (left := peer.ask("left")) != count:
            raise Failed(f"{count:,} jobs were enqueued, and its store has {left:,}")
        return seconds

    count = _grown(peer, f"enqueue-{bulk}", run, sizes.seconds)
    return count / run(count)


def process(peer: Peer, sizes: Sizes, processes: int) -> float:
    """Jobs a second, of a backlog that was enqueued in bulk."""
    count = _grown(peer, "process", lambda jobs: jobs / drain(peer, jobs, sizes), sizes.seconds)
    return drain(peer, count, sizes, processes=processes)


def drain(
    peer: Peer,
    count: int,
    sizes: Sizes,
    *,
    task: str = "nothing",
    size: int = SMALL,
    processes: int = 1,
) -> float:
    """Jobs a second once all processes are at work, until the store is empty."""
    peer.renew()
    peer.enqueue(task, count, bulk=True, size=size)
    until = time.monotonic() + sizes.bound
    with peer.working(task, processes) as running:
        # Not from the first mark on: starting up is no part of a rate, and two start later.
        first = 0
        while first < count // 20 or (peer.marks.processes() < processes and first < count // 4):
            if all(worker.poll() is not None for worker in running) or time.monotonic() > until:
                break
            time.sleep(_LOOK)
            first = peer.marks.ran_of(count)
        began = time.monotonic()
        peer.wait_ran(count, sizes.bound, running)
        peer.wait_settled(sizes.bound)
        # A few jobs may all have run at the first look.
        return max(count - first, 1) / (time.monotonic() - began)


def slow(peer: Peer, sizes: Sizes) -> float:
    """Jobs a second of 10 ms and 2 kB each, with one process and ten at a time."""
    return drain(peer, sizes.slow_jobs, sizes, task="slow", size=LARGE)


def cpu(peer: Peer, sizes: Sizes) -> float:
    """Jobs a second of 1 ms of CPU time each, with one process: 1,000 is the limit of one core."""
    return drain(peer, sizes.slow_jobs, sizes, task="cpu")


def latency(peer: Peer, sizes: Sizes) -> list[float]:
    """Seconds from the call of enqueue to the begin of the task, for every job."""
    peer.renew()
    with peer.working("stamp") as running:
        _wait_for_worker(peer, sizes, running)
        # The first ones load what the others find loaded.
        peer.ask("pace", task="stamp", first=0, count=5, size=SMALL, rate=LATENCY_RATE)
        peer.wait_ran(5, sizes.bound, running)
        called = peer.ask(
            "pace",
            task="stamp",
            first=5,
            count=sizes.latency_jobs,
            size=SMALL,
            rate=LATENCY_RATE,
            patience=PATIENCE + sizes.latency_jobs / LATENCY_RATE,
        )
        peer.wait_ran(5 + len(called), sizes.bound, running)
    return [peer.marks.time_of(5 + number) - at for number, at in enumerate(called)]


def _wait_for_worker(peer: Peer, sizes: Sizes, running: list[subprocess.Popen[bytes]]) -> None:
    """Until it runs what comes; of some libraries what came before it began is never run."""
    until = time.monotonic() + sizes.bound
    while peer.marks.ran_of(1) == 0 and time.monotonic() < until:
        peer.enqueue("stamp", 1, bulk=False)
        with suppress(Failed):
            peer.wait_ran(1, _AGAIN_SECONDS, running)
    peer.wait_ran(1, 0, running)


def fan_out(peer: Peer, sizes: Sizes) -> float:
    """Seconds from the call until what comes after all others began."""
    peer.renew()
    with peer.working("nothing") as running:
        peer.enqueue("nothing", 1, bulk=False)
        peer.wait_ran(1, sizes.bound, running)
        peer.wait_settled(sizes.bound)
        called = peer.ask("fan_out", count=sizes.fan_out)
        until = time.monotonic() + sizes.bound
        while (ended := peer.marks.time_of(LAST)) == 0:
            if time.monotonic() > until:
                ran = peer.marks.ran_of(sizes.fan_out)
                raise Failed(f"no end within {sizes.bound:.0f} s; {ran:,} of {sizes.fan_out:,} ran")
            time.sleep(_LOOK)
    return ended - called


def before_kill(peer: Peer, sizes: Sizes) -> None:
    """The jobs, enqueued while no other peer is busy."""
    peer.renew()
    peer.enqueue("short", sizes.kill_jobs, bulk=True)


def killed(peer: Peer, sizes: Sizes) -> dict[str, float]:
    """How the jobs fared whose worker was killed three times, with another one started at once."""
    count = sizes.kill_jobs
    for quarter in (1, 2, 3):
        with peer.working("short") as running:
            peer.wait_ran(count, sizes.bound, running, some=quarter * count // 4)
            # Many run in step: right after some have ended, none may be under way.
            time.sleep(SHORT / 2)
    began = last = time.monotonic()
    with peer.working("short"):
        ran = peer.marks.times_ran(count)
        # Also what ended, and is not known to have: that is what runs twice.
        while 0 in ran or peer.ask("left"):
            time.sleep(0.02)
            before, ran = ran, peer.marks.times_ran(count)
            now = time.monotonic()
            last = now if ran != before else last
            if now > began + sizes.kill_seconds:
                break
    return {
        "never": ran.count(0),
        "twice": sum(times > 1 for times in ran),
        "seconds": last - began,
    }


def cost(peer: Peer, sizes: Sizes, stores: Asked) -> dict[str, float]:
    """What PostgreSQL writes and is asked for one job."""
    count = min(peer.jobs.get("process", 1000), 20_000)
    name = peer.entrant.name
    peer.renew()
    before = stores.ask("wal")
    peer.enqueue("nothing", count, bulk=True)
    enqueued = stores.ask("wal")
    stores.ask("log_statements", on=True)
    try:
        counted = stores.ask("statements", name=name)
        with peer.working("nothing") as running:
            peer.wait_ran(count, sizes.bound, running)
            peer.wait_settled(sizes.bound)
        statements = stores.ask("statements", name=name) - counted
    finally:
        stores.ask("log_statements", on=False)
    return {
        "jobs": count,
        "wal_enqueue": (enqueued - before) / count,
        "wal_process": (stores.ask("wal") - enqueued) / count,
        "statements": statements / count,
    }


def server(peer: Peer, sizes: Sizes, stores: Asked) -> dict[str, Any]:
    """What a peer costs the server of PostgreSQL: per 1,000 jobs, and while nothing is to be done.

    Statements are not logged meanwhile, as that would cost more than some of them. The server adds
    up a session's counters when it has been idle for a second, or ends: where work is counted,
    workers are killed before the counters are read.
    """
    name = peer.entrant.name
    backlogged = "process" not in peer.ask("about").get("without", {})
    found: dict[str, Any] = {}
    if backlogged:
        count = max(min(peer.jobs.get("process", 1000), 20_000), 100)
        peer.renew()
        peer.enqueue("nothing", count, bulk=True)
        with _counted(stores, name) as backlog, peer.working("nothing") as running:
            peer.wait_ran(count, sizes.bound, running)
            peer.wait_settled(sizes.bound)
        found["backlog"] = _each(backlog, count / 1000)
    peer.renew()
    without = stores.ask("counters", name=name)["connections"]
    with ExitStack() as counted, peer.working("stamp") as running:
        _wait_for_worker(peer, sizes, running)
        time.sleep(_QUIET_SECONDS)
        with _counted(stores, name) as idle:
            time.sleep(sizes.cost_seconds)
        found["connections"] = stores.ask("counters", name=name)["connections"] - without
        found["idle"] = _each(idle, sizes.cost_seconds / 60)
        count = int(sizes.cost_seconds * BUSY_RATE)
        busy = counted.enter_context(_counted(stores, name))
        patience = PATIENCE + 5 * sizes.cost_seconds
        request = {"task": "stamp", "first": 1, "count": count, "size": SMALL, "rate": BUSY_RATE}
        peer.ask("pace", **request, patience=patience)
        peer.wait_ran(1 + count, sizes.bound, running)
    found["busy"] = _each(busy, count / 1000)
    return found


@contextmanager
def _counted(stores: Asked, name: str) -> Generator[dict[str, float]]:
    """Fills what it yields with what the server did meanwhile."""
    time.sleep(_ADDED_UP_SECONDS)
    before = stores.ask("counters", name=name)
    done: dict[str, float] = {}
    yield done
    time.sleep(_ADDED_UP_SECONDS)
    after = stores.ask("counters", name=name)
    for counter in ("cpu", "wal", "commits", "hits"):
        if before[counter] is not None:
            done[counter] = after[counter] - before[counter]


def _each(done: dict[str, float], units: float) -> dict[str, float]:
    return {counter: value / units for counter, value in done.items()}


def percentile(seconds: list[float], percent: int) -> float:
    """Milliseconds."""
    return 1000 * quantiles(seconds, n=100, method="inclusive")[percent - 1]


def _grown(peer: Peer, what: str, run: Callable[[int], float], seconds: float) -> int:
    """How many jobs take about so many seconds; found out once for each peer."""
    count = peer.jobs.get(what, 0)
    if count == 0:
        count = 200
        while (taken := max(run(count), 0.001)) < 0.3 * seconds and count < _MOST:
            count = min(int(count * min(seconds / taken, 30)), _MOST)
        peer.jobs[what] = count = max(100, min(int(count * seconds / taken), _MOST))
    return count
