"""`penstock bench --work`: what a worker adds to functions that do something, and its memory.

The same functions run in pairs, bare and as jobs: as many processes, threads and slots on each
side. Efficiency is the time of the bare ones over that of the jobs, from the first start to the
last end.
"""

from __future__ import annotations

import json as json_text
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from penstock.cli import output
from penstock.errors import PenstockError
from penstock.tools.bench import measure, work_tasks
from penstock.worker.memory_use import memory_of

SECONDS = 3.0  # that a bare run should take
_MB = 2**20
_SAMPLE_SECONDS = 0.05


class WorkSize(NamedTuple):
    """What is run, and by how many."""

    kind: str
    jobs: int
    loops: int
    threads: int
    async_slots: int
    processes: int


class Memory:
    """The most resident bytes of a worker's processes, looked at while they run."""

    def __init__(self, pid: int) -> None:
        self.supervisor = 0
        self.children: dict[int, int] = {}
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.supervisor = max(self.supervisor, memory_of(self._pid))
            for child in _children_of(self._pid):
                self.children[child] = max(self.children.get(child, 0), memory_of(child))


def bench(
    kind: str,
    *,
    broker: str = "sqlite",
    url: str | None = None,
    jobs: int,
    threads: int,
    async_slots: int,
    processes: int,
    runs: int,
    folder: Path | None = None,
    json: bool = False,
) -> dict[str, Any]:
    """Measure, print and return the figures; at most `jobs` jobs a run."""
    progress_line = output.ProgressLine(quiet=json)

    def say(text: str) -> None:
        progress_line.clear()
        if not json:
            output.print_note(f"... {text}")

    count = min(jobs, work_tasks.jobs_for(SECONDS, kind, threads, async_slots, processes))
    count -= count % processes  # each process has as many
    loops = work_tasks.loops_in_a_millisecond()
    work = WorkSize(kind, count, loops, threads, async_slots, processes)
    pairs: list[dict[str, float]] = []
    for number in range(runs):
        figures: dict[str, float] = {}
        for bare in (True, False) if number % 2 else (False, True):
            say(f"pair {number + 1} of {runs}: {count:,} {'calls' if bare else 'jobs'}")
            if bare:
                figures |= bare_run(work)
            else:
                with _store(broker, url, folder) as store:
                    figures |= worker_run(work, store)
        figures["efficiency"] = figures["bare_seconds"] / figures["worker_seconds"]
        pairs.append(figures)
    progress_line.clear()
    made: dict[str, Any] = {
        **work._asdict(),
        "broker": broker,
        "runs": runs,
        **{name: median(pair[name] for pair in pairs) for name in pairs[0]},
    }
    if json:
        output.print_json(made)
    else:
        _put(made)
    return made


def bare_run(work: WorkSize) -> dict[str, float]:
    """The functions alone: seconds from the first beginning to the last end."""
    numbers = (work.jobs // work.processes, work.loops, work.threads, work.async_slots)
    command = [
        sys.executable,
        "-m",
        "penstock.tools.bench.bare_work",
        work.kind,
        *map(str, numbers),
    ]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(work.processes)
    ]
    try:
        for process in running:
            if process.stdout is not None:
                process.stdout.readline()  # it is ready
        for process in running:
            if process.stdin is not None:
                process.stdin.write("\n")
                process.stdin.flush()
        said = [json_text.loads(process.communicate(timeout=600)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    began, ended, memory = zip(*said, strict=True)
    return {"bare_seconds": max(ended) - min(began), "bare_memory": max(memory) / _MB}


def worker_run(work: WorkSize, url: str) -> dict[str, float]:
    """The same as jobs: enqueued before, run by one worker."""
    with measure.store(url):
        kinds = [work_tasks.kind_of(work.kind, number) for number in range(work.jobs)]
        for kind in sorted(set(kinds)):
            task = work_tasks.app.tasks[f"{work_tasks.__name__}:{kind}"]
            task.enqueue_many([(work.loops,)] * kinds.count(kind))
        options = ["--threads", str(work.threads), "--async-slots", str(work.async_slots)]
        with measure.worker(
            url, "--drain", *options, processes=work.processes, tasks=work_tasks.__name__
        ) as process:
            memory = Memory(process.pid)
            try:
                code = process.wait(600)
            finally:
                memory.close()
        first, last, ended = measure.span()
    if code != 0 or ended != work.jobs:
        raise PenstockError(
            f"the benchmark's worker ended with code {code}, and {ended:,} of {work.jobs:,} jobs"
        )
    return {
        "worker_seconds": last - first,
        "supervisor_memory": memory.supervisor / _MB,
        "child_memory": max(memory.children.values(), default=0) / _MB,
    }


@contextmanager
def _store(broker: str, url: str | None, folder: Path | None) -> Generator[str]:
    """An empty store of this kind, gone afterwards."""
    if broker == "postgres":
        from penstock.tools.bench.postgres.databases import bench_server

        with bench_server(url, folder) as server, server.database() as made:
            yield made
    elif broker == "redis":
        from penstock.tools.bench.redis.report import URL, Stores

        with Stores(url or URL)() as made:
            yield made
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as made:
            yield f"sqlite:///{Path(made) / 'work.db'}"


def _children_of(pid: int) -> list[int]:
    """None where /proc does not say."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _put(figures: dict[str, Any]) -> None:
    made = output.table("measure", "figure", "unit", "remarks", right=("figure",))
    jobs = figures["jobs"]
    bare, worker = figures["bare_seconds"], figures["worker_seconds"]
    for row in (
        ("bare function", f"{jobs / bare:,.0f}", "calls/s", "no queue: the same threads and slots"),
        ("as jobs", f"{jobs / worker:,.0f}", "jobs/s", "from the first start to the last end"),
        ("efficiency", f"{figures['efficiency']:.2f}", "", f"median of {figures['runs']} pairs"),
        ("bare process", f"{figures['bare_memory']:.0f}", "MB", "resident, at its end"),
        ("child", f"{figures['child_memory']:.0f}", "MB", "resident, at most"),
        ("supervisor", f"{figures['supervisor_memory']:.0f}", "MB", "resident, at most"),
    ):
        made.add_row(*row)
    output.console().print(made)
    output.print_text(
        f"{figures['kind']} on {figures['broker']}: {jobs:,} jobs, processes: "
        f"{figures['processes']}, threads: {figures['threads']}, async slots: "
        f"{figures['async_slots']}",
        "dim",
    )
