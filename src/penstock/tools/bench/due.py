"""How late jobs with a time start: on a worker that has nothing else to do, and on a busy one.

They are due at moments that nothing else announces, far enough apart for an idle worker to have
become as quiet as it gets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime

from penstock.tools.bench.measure import (
    TEXT,
    Say,
    percentile,
    started_at,
    store,
    wait_for_worker,
    worker,
)
from penstock.tools.bench.tasks import begin, nothing

PROMISED_MS = 100
JOBS = 20
_APART_SECONDS = 0.7
_FIRST_SECONDS = 3.0
_BESIDE_RATE = 100.0


def late(url: str, jobs: int, say: Say, *, busy: bool) -> list[float]:
    """Seconds from the time of each job to its start; busy: beside a stream of other jobs."""
    say(f"{jobs} jobs with a time, on {'a busy' if busy else 'an idle'} worker")
    with store(url), worker(url, "--grace", "5s"):
        wait_for_worker()
        with _others() if busy else nullcontext():
            first = time.time() + _FIRST_SECONDS
            due = [first + number * _APART_SECONDS for number in range(jobs)]
            at = [datetime.fromtimestamp(moment, UTC) for moment in due]
            ids = [begin.options(at=moment).enqueue().id for moment in at]
            time.sleep(max(0.0, due[-1] - time.time()))
            began = [started_at(job_id) for job_id in ids]
    return [start - moment for start, moment in zip(began, due, strict=True)]


@contextmanager
def _others() -> Generator[None]:
    """A stream of quick jobs."""
    stop = threading.Event()

    def stream() -> None:
        while not stop.wait(1 / _BESIDE_RATE):
            nothing.enqueue(0, TEXT)

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def lateness(name: str, seconds: list[float]) -> dict[str, float]:
    """The figures of one worker: percentiles, and how many kept the promise."""
    return {
        f"due_{name}_p50_ms": percentile(seconds, 50),
        f"due_{name}_p99_ms": percentile(seconds, 99),
        f"due_{name}_in_time": sum(each * 1000 <= PROMISED_MS for each in seconds) / len(seconds),
    }


def rows(figures: dict[str, float]) -> list[tuple[str, str, str, str]]:
    """The lines of the table."""
    return [
        (
            f"job's time to task start, {name} worker",
            f"{figures[f'due_{name}_p50_ms']:.2f} / {figures[f'due_{name}_p99_ms']:.2f}",
            "ms p50/p99",
            f"{figures[f'due_{name}_in_time']:.0%} within {PROMISED_MS} ms",
        )
        for name in ("idle", "busy")
    ]
