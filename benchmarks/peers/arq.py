"""arq on Redis, whose worker looks for jobs on a clock."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import arq
from arq.connections import ArqRedis, RedisSettings

from peers import work

_TOGETHER = 100
_QUEUE = "arq:queue"
_SETTINGS = RedisSettings.from_dsn(work.URL)
_pools: list[ArqRedis] = []


def _task(name: str, function: Callable[[int, str], Awaitable[None]]) -> Any:
    async def run(context: dict[str, Any], number: int, text: str) -> None:
        del context
        await function(number, text)

    return arq.func(run, name=name)


class Settings:
    """What the command `arq` reads."""

    functions = [_task(name, function) for name, function in work.ASYNC_TASKS.items()]  # noqa: RUF012  as arq reads it
    redis_settings = _SETTINGS
    max_jobs = work.THREADS if work.KIND in {"short", "slow"} else 100
    poll_delay = 0.01
    keep_result = 0
    log_results = False
    # A lock of this and ten seconds more is what a killed worker leaves behind.
    job_timeout = 5 if work.KIND == "short" else 300


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "arq",
        "version": arq.version.VERSION,
        "bulk": None,
        "settings": f"async tasks, at most 100 at a time (default: 10), {work.THREADS} where tasks "
        f"wait, polled every 10 ms (default: 500), results not kept; many: {_TOGETHER} calls "
        "awaited together",
        "kill": "job_timeout 5 s (default: 300), so that the lock of a job ends after 15",
    }


async def open_store() -> None:
    """A pool of connections."""
    _pools.append(await arq.create_pool(_SETTINGS))


async def close_store() -> None:
    """Let go of the store."""
    while _pools:
        await _pools.pop().aclose()


async def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = _pools[0].enqueue_job
    for number in numbers:
        await put(task, number, text)


async def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """There is nothing for many; calls that are awaited together share its pool."""
    put = _pools[0].enqueue_job
    for first in range(0, len(numbers), _TOGETHER):
        part = numbers[first : first + _TOGETHER]
        await asyncio.gather(*[put(task, number, text) for number in part])


fan_out = None  # it has none


async def left() -> int:
    """A job is in the queue until it has ended."""
    return await _pools[0].zcard(_QUEUE)


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command for each process."""
    del kind
    return [[sys.executable, "-m", "arq", "peers.arq.Settings"]] * processes
