"""The tasks, the same for every peer; what a library adds is how it calls them.

Each takes the number of its job and a text that gives the job its size. Those that wait do it the
way of the library: an async one hands the time on, a threaded one holds its thread.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from peers.marks import LAST, Marks

URL = os.environ["BENCH_URL"]
KIND = os.environ.get("BENCH_KIND", "")  # in a worker: which measurement it is for
THREADS = 10  # of one worker process, where tasks wait: as many in every peer
SHORT = 0.050  # seconds of a task that is killed
SLOW = 0.010  # seconds of a task that waits
CPU = 0.001  # seconds of a task that computes

_marks = Marks(Path(os.environ["BENCH_MARKS"]))


def nothing(number: int, text: str) -> None:
    """Costs what a job costs when its function costs nothing."""
    del text
    _marks.ran(number)


def stamp(number: int, text: str) -> None:
    """Says when it began."""
    _marks.began(number)
    nothing(number, text)


def short(number: int, text: str) -> None:
    """Ran if it came to its end, 50 ms after its begin."""
    time.sleep(SHORT)
    nothing(number, text)


def slow(number: int, text: str) -> None:
    """Waits for 10 ms, as for an answer from elsewhere."""
    time.sleep(SLOW)
    nothing(number, text)


def cpu(number: int, text: str) -> None:
    """Computes for a millisecond, by the time of its own thread."""
    until = time.thread_time() + CPU
    while time.thread_time() < until:
        pass
    nothing(number, text)


def last() -> None:
    """What runs after all others of a fan-out."""
    _marks.began(LAST)


TASKS = {"nothing": nothing, "stamp": stamp, "short": short, "slow": slow, "cpu": cpu}


async def nothing_async(number: int, text: str) -> None:
    """`nothing`, for a library that awaits its tasks."""
    nothing(number, text)


async def stamp_async(number: int, text: str) -> None:
    """`stamp`, for a library that awaits its tasks."""
    stamp(number, text)


async def short_async(number: int, text: str) -> None:
    """`short`, for a library that awaits its tasks."""
    await asyncio.sleep(SHORT)
    nothing(number, text)


async def slow_async(number: int, text: str) -> None:
    """`slow`, for a library that awaits its tasks."""
    await asyncio.sleep(SLOW)
    nothing(number, text)


async def cpu_async(number: int, text: str) -> None:
    """`cpu`, which holds its event loop, for a library that awaits its tasks."""
    cpu(number, text)


ASYNC_TASKS = {
    "nothing": nothing_async,
    "stamp": stamp_async,
    "short": short_async,
    "slow": slow_async,
    "cpu": cpu_async,
}
