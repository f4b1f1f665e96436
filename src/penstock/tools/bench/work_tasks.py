"""Tasks that do some work, each the plain function that the bare run calls as well.

`loops` is how often the function that computes goes round in a millisecond, measured once: both
sides do the same work then, and not the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median

from penstock.app.app import App

CPU_SECONDS = 0.001
WAIT_SECONDS = 0.05
KINDS = ("cpu1ms", "io50ms", "async50ms", "mixed")
_TRIALS, _TRIAL_LOOPS = 25, 20_000

app = App()


@app.task(queue="bench")
def cpu1ms(loops: int) -> None:
    """Computes for a millisecond, and holds the interpreter."""
    number = 1
    for _ in range(loops):
        number = number * 31 % 65_537


@app.task(queue="bench")
def io50ms(loops: int) -> None:
    """Waits for 50 ms, as for an answer from elsewhere, and holds its thread."""
    del loops
    time.sleep(WAIT_SECONDS)


@app.task(queue="bench")
async def async50ms(loops: int) -> None:
    """Waits for 50 ms on the event loop."""
    del loops
    await asyncio.sleep(WAIT_SECONDS)


THREADED: dict[str, Callable[[int], None]] = {"cpu1ms": cpu1ms, "io50ms": io50ms}
AWAITED: dict[str, Callable[[int], Awaitable[None]]] = {"async50ms": async50ms}


def kind_of(work: str, number: int) -> str:
    """Which task the job of this number is; mixed: each in turn."""
    return KINDS[number % 3] if work == "mixed" else work


def loops_in_a_millisecond() -> int:
    """The median of several trials, on this machine and this Python."""
    seconds: list[float] = []
    for _ in range(_TRIALS):
        began = time.perf_counter()
        cpu1ms(_TRIAL_LOOPS)
        seconds.append(time.perf_counter() - began)
    return max(1, int(_TRIAL_LOOPS * CPU_SECONDS / median(seconds)))


def jobs_for(seconds: float, work: str, threads: int, async_slots: int, processes: int) -> int:
    """How many jobs one process, or several, need so many seconds for with no queue at all."""
    each = {
        "cpu1ms": CPU_SECONDS,
        "io50ms": WAIT_SECONDS / threads,
        "async50ms": WAIT_SECONDS / async_slots,
    }
    slowest = max(each.values()) / len(each) if work == "mixed" else each[work]
    return max(int(seconds / slowest) * processes, 10 * processes)
