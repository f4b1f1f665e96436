"""The measurements of Penstock itself, each on a new store, through the public API."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

import msgspec

from penstock.broker.position import BEGINNING
from penstock.cli.store_choice import use_store
from penstock.errors import PenstockError
from penstock.job import ENDED
from penstock.tools.bench.tasks import app, begin, nothing

TEXT = "x" * 60  # makes a body of about 100 bytes
_MOST_SECONDS = 600
Say = Callable[[str], None]


@contextmanager
def store(url: str) -> Generator[str]:
    """Meanwhile the benchmark's app uses this store."""
    with use_store(url, None):
        app.close()
        try:
            yield url
        finally:
            app.close()


@contextmanager
def worker(
    url: str, *options: str, processes: int = 1, tasks: str = "penstock.tools.bench.tasks"
) -> Generator[subprocess.Popen[bytes]]:
    """A real `penstock worker` with its child processes."""
    command = [
        sys.executable,
        "-m",
        "penstock",
        "worker",
        tasks,
        "--url",
        url,
    ]
    command += ["--processes", str(processes), "--log-level", "warning", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def backlog(url: str, jobs: int, say: Say) -> dict[str, float]:
    """Bulk enqueue, then the processing of all of it by one worker process."""
    with store(url):
        say(f"bulk enqueue of {jobs:,} jobs")
        enqueued = bulk(jobs)
        say(f"one worker process, {jobs:,} jobs")
        wall = drain(url)
        say("reading the history")
        first, last, ended = span()
    if ended != jobs:
        raise PenstockError(f"{jobs:,} jobs were enqueued and {ended:,} ended")
    return {
        "bulk_enqueue": enqueued,
        "processing": jobs / (last - first),
        "processing_seconds": last - first,
        "processing_wall_seconds": wall,
    }


def bulk(jobs: int) -> float:
    """Jobs per second of one bulk enqueue into the current store."""
    rows = [(number, TEXT) for number in range(jobs)]
    _ = app.broker  # opening the store is not part of it
    began = time.perf_counter()
    nothing.enqueue_many(rows)
    return jobs / (time.perf_counter() - began)


def drain(url: str, *, processes: int = 1) -> float:
    """Seconds that a worker with --drain takes, from its start to its end."""
    began = time.perf_counter()
    with worker(url, "--drain", processes=processes) as process:
        code = process.wait(_MOST_SECONDS)
    wall = time.perf_counter() - began
    if code != 0:
        raise PenstockError(f"the benchmark's worker ended with code {code}")
    return wall


def span() -> tuple[float, float, int]:
    """First start, last end and number of all attempts in the history."""
    first, last, ended, position = float("inf"), 0.0, 0, BEGINNING
    while rows := app.broker.history(after=position, limit=10_000):
        position = rows[-1].position
        for event in rows:
            if event.kind == "attempt":
                ended += 1
                last = max(last, event.at)
                if event.started_at is not None:
                    first = min(first, event.started_at)
    return first, last, ended


def single(url: str, jobs: int) -> float:
    """Enqueues per second, one call and one commit each."""
    with store(url):
        _ = app.broker
        began = time.perf_counter()
        for number in range(jobs):
            nothing.enqueue(number, TEXT)
        return jobs / (time.perf_counter() - began)


def waits(url: str, jobs: int, rate: float) -> list[tuple[float, float]]:
    """Seconds from the call of enqueue, and from its return, to the start of the task."""
    with store(url), worker(url, "--grace", "5s"):
        wait_for_worker()
        sent: list[tuple[str, float, float]] = []
        start = time.perf_counter()
        for number in range(jobs):
            time.sleep(max(start + number / rate - time.perf_counter(), 0))
            called = time.time()
            handle = begin.enqueue()
            sent.append((handle.id, called, time.time()))
        began = [started_at(job_id) for job_id, _, _ in sent]
    # A task may start before the call has returned: that counts as 0.
    return [
        (at - called, max(at - back, 0)) for at, (_, called, back) in zip(began, sent, strict=True)
    ]


def wait_for_worker() -> None:
    """Until the worker claims; and a first job, to warm it up."""
    until = time.monotonic() + 60
    while not any(row.alive and row.claimed_at for row in app.broker.workers()):
        if time.monotonic() > until:
            raise PenstockError("the worker of the benchmark did not start within 60 s")
        time.sleep(0.05)
    begin.enqueue().result(timeout=60)


def percentiles(waited: list[tuple[float, float]]) -> dict[str, float]:
    """Percentiles of what `waits` returned, in milliseconds."""
    from_call, from_return = [call for call, _ in waited], [back for _, back in waited]
    return {
        "call_to_start_p50_ms": percentile(from_call, 50),
        "call_to_start_p99_ms": percentile(from_call, 99),
        "return_to_start_p50_ms": percentile(from_return, 50),
        "return_to_start_p99_ms": percentile(from_return, 99),
    }


def started_at(job_id: str) -> float:
    """When a job of `begin` started, by its own result."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        job: Any = app.broker.get(job_id)
        if job is not None and job.state in ENDED and job.result is not None:
            return msgspec.json.decode(job.result, type=float)
        time.sleep(0.01)
    raise PenstockError(f"job {job_id} of the benchmark did not end: {app.broker.why(job_id)}")


def percentile(seconds: list[float], percent: int) -> float:
    return 1000 * quantiles(seconds, n=100, method="inclusive")[percent - 1]
