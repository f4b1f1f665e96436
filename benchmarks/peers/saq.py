"""SAQ on PostgreSQL or Redis, by the URL."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import saq
from saq.queue import Queue

from peers import work

_TOGETHER = 100
# What a killed worker held is found by the age of its heartbeat, and run if retries are left.
_CARE = {"heartbeat": 10, "retries": 3}
_queues: list[Queue] = []


def _task(function: Callable[[int, str], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def run(context: dict[str, Any], *, number: int, text: str) -> None:
        del context
        await function(number, text)

    return run


def make_queue() -> Queue:
    """A queue for this process."""
    return Queue.from_url(work.URL, name="bench")


def settings() -> dict[str, Any]:
    """What the command `saq` reads."""
    return {
        "queue": make_queue(),
        "functions": [(name, _task(function)) for name, function in work.ASYNC_TASKS.items()],
        "concurrency": work.THREADS,
        "timers": {"sweep": 5} if work.KIND == "short" else {},
    }


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "SAQ",
        "version": saq.__version__,
        "bulk": None,
        "settings": f"async tasks, concurrency {work.THREADS} (the default), results kept no "
        f"longer than the job; many: {_TOGETHER} calls awaited together; fan-out: queue.map, "
        "polled every 50 ms",
        "kill": "heartbeat 10 s and 3 retries on the job, swept every 5 s "
        "(defaults: none, 1, 60 s)",
    }


async def open_store() -> None:
    """Make the tables, where there are any."""
    _queues.append(make_queue())
    await _queues[0].connect()


async def close_store() -> None:
    """Let go of the store."""
    while _queues:
        await _queues.pop().disconnect()


def _options(task: str) -> dict[str, Any]:
    return {"ttl": -1, **(_CARE if task == "short" else {})}


async def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put, options = _queues[0].enqueue, _options(task)
    for number in numbers:
        await put(task, number=number, text=text, **options)


async def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """There is nothing for many; calls that are awaited together share its pool."""
    put, options = _queues[0].enqueue, _options(task)
    for first in range(0, len(numbers), _TOGETHER):
        part = numbers[first : first + _TOGETHER]
        await asyncio.gather(*[put(task, number=number, text=text, **options) for number in part])


async def fan_out(count: int) -> None:
    """`map` is awaited by whoever fans out."""
    children = [{"number": number, "text": ""} for number in range(count)]
    await _queues[0].map("nothing", children, poll_interval=0.05)
    work.last()


async def left() -> int:
    """Queued or active."""
    return await _queues[0].count("incomplete")


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command, which forks the processes."""
    del kind
    command = [sys.executable, "-m", "saq", "peers.saq.settings", "--workers", str(processes)]
    return [command]
