"""Fan-in: many jobs and one that takes all their outputs, compared with as many plain jobs.

One worker process drains both, one right after the other; which comes first alternates, so that
other load on the machine affects both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from statistics import median

from penstock.errors import PenstockError
from penstock.tools.bench import measure
from penstock.tools.bench.measure import TEXT, Say
from penstock.tools.bench.tasks import gather, nothing

MOST_JOBS = 100_000
RUNS = 3
Stores = Callable[[], AbstractContextManager[str]]  # makes a new store: its URL


def fan_in(stores: Stores, jobs: int, say: Say, runs: int = RUNS) -> dict[str, float]:
    """Medians of several pairs of runs."""
    pairs = [pair(stores, jobs, say, number) for number in range(runs)]
    return {name: median(figures[name] for figures in pairs) for name in pairs[0]}


def pair(stores: Stores, jobs: int, say: Say, number: int = 0) -> dict[str, float]:
    """Jobs per second of plain jobs, of a flow until its last job has ended, and their ratio."""
    count = min(jobs, MOST_JOBS)
    rates: dict[bool, float] = {}
    for joined in (True, False) if number % 2 else (False, True):
        say(f"fan-in: {count:,} jobs and one after them all" if joined else f"{count:,} plain jobs")
        with stores() as url:
            rates[joined] = _rate(url, count, joined=joined)
    return {
        "fan_in": rates[True],
        "fan_in_plain": rates[False],
        "fan_in_ratio": rates[True] / rates[False],
        "fan_in_jobs": count,
    }


def _rate(url: str, count: int, *, joined: bool) -> float:
    with measure.store(url):
        if joined:
            gather.job(nothing.map(range(count), TEXT).output).enqueue()
        else:
            nothing.enqueue_many((number, TEXT) for number in range(count))
        measure.drain(url)
        first, last, ended = measure.span()
    if ended != count + joined:
        raise PenstockError(f"{count + joined:,} jobs were enqueued and {ended:,} ended")
    return count / (last - first)
