"""`python -m peers.serve celery`: one peer, in its own environment, does what the runner asks.

A peer is a module with these names; enqueueing is timed here, so it is timed alike for all:

    about() -> dict             library, version, and how it is set up
    open_store()                tables and connections; the store is empty before
    close_store()
    enqueue(task, numbers, text)        one call and one commit each
    enqueue_bulk(task, numbers, text)   by the way in that its documentation has for many
    fan_out(count)              `count` jobs and one after them all; None: it has none
    left() -> int               jobs that the store has not seen end
    workers(kind, processes) -> [command line, ...]
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from peers.protocol import answer


def main() -> None:
    """Serve the peer that the first argument names."""
    peer = importlib.import_module(f"peers.{sys.argv[1]}")
    requests: dict[str, Callable[..., Any]] = {
        "about": lambda: peer.about() | {"has_fan_out": peer.fan_out is not None},
        "open": peer.open_store,
        "close": peer.close_store,
        "left": peer.left,
        "workers": peer.workers,
        "enqueue": lambda **request: _enqueue(peer, **request),
        "pace": lambda **request: _pace(peer, **request),
        "fan_out": lambda count: _fan_out(peer, count),
    }
    answer(requests)


async def _enqueue(peer: ModuleType, *, task: str, count: int, size: int, bulk: bool) -> float:
    """Seconds that it took to hand over `count` jobs with a text of `size` characters."""
    enqueue = peer.enqueue_bulk if bulk else peer.enqueue
    text = "x" * size
    began = time.perf_counter()
    await _awaited(enqueue(task, range(count), text))
    return time.perf_counter() - began


async def _pace(
    peer: ModuleType, *, task: str, first: int, count: int, size: int, rate: float
) -> list[float]:
    """When each of the jobs was handed over, by the clock that the marks are made with."""
    text = "x" * size
    called: list[float] = []
    start = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(start + number / rate - time.monotonic(), 0))
        called.append(time.monotonic())
        await _awaited(peer.enqueue(task, range(first + number, first + number + 1), text))
    return called


async def _fan_out(peer: ModuleType, count: int) -> float:
    """When it was asked for; its end is a mark."""
    called = time.monotonic()
    await _awaited(peer.fan_out(count))
    return called


async def _awaited(made: Any) -> None:
    if inspect.isawaitable(made):
        await made


if __name__ == "__main__":
    main()
