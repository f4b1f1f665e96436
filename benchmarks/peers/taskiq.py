"""taskiq on Redis (streams) or PostgreSQL (taskiq-pg), by the URL."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Any

import taskiq

from peers import work

_TOGETHER = 100
_POSTGRES = work.URL.startswith("postgresql:")
_WITHOUT = "what waits when its worker starts is never run"
fan_out = None  # it has none


def _open() -> taskiq.AsyncBroker:
    # Each has an environment of its own: the newest of one does not go with that of the other.
    if _POSTGRES:
        from taskiq_pg import AsyncpgBroker

        return AsyncpgBroker(work.URL)
    from taskiq_redis import RedisStreamBroker

    # What a killed worker held is taken by another one after this time without an end.
    idle = {"idle_timeout": 15_000} if work.KIND == "short" else {}
    return RedisStreamBroker(work.URL, **idle)


broker: Any = _open()
TASKS = {name: broker.task(task_name=name)(function) for name, function in work.ASYNC_TASKS.items()}


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    how = "taskiq-pg, LISTEN and asyncpg" if _POSTGRES else "Redis streams, acknowledged when run"
    package = "taskiq-pg" if _POSTGRES else "taskiq-redis"
    backlogs = ("process", "process_two", "slow", "cpu", "kill") if _POSTGRES else ()
    return {
        "library": "taskiq",
        "version": f"{version('taskiq')} ({package} {version(package)})",
        "bulk": None,
        "settings": f"async tasks, {how}, no results; at most 100 at a time (the default), "
        f"{work.THREADS} where tasks wait; many: {_TOGETHER} calls awaited together",
        "kill": _WITHOUT if _POSTGRES else "idle_timeout 15 s (default: 10 minutes)",
        "without": dict.fromkeys(backlogs, _WITHOUT),
    }


async def open_store() -> None:
    """Make the table, or the group of the stream."""
    await broker.startup()


async def close_store() -> None:
    """Let go of the store."""
    await broker.shutdown()


async def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = TASKS[task].kiq
    for number in numbers:
        await put(number, text)


async def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """There is nothing for many; calls that are awaited together share its pool."""
    put = TASKS[task].kiq
    for first in range(0, len(numbers), _TOGETHER):
        part = numbers[first : first + _TOGETHER]
        await asyncio.gather(*[put(number, text) for number in part])


async def left() -> int:
    """In the table; or in the stream, and not acknowledged."""
    if _POSTGRES:
        return await broker.write_pool.fetchval("select count(*) from taskiq_messages")
    return await _left_in_stream()


async def _left_in_stream() -> int:
    """A stream keeps what was acknowledged: taken and open, and what comes after the last taken."""
    from redis.asyncio import Redis

    stream = broker.queue_name
    async with Redis(connection_pool=broker.connection_pool) as client:
        group = (await client.xinfo_groups(stream))[0]
        last = group["last-delivered-id"].decode()
        if last == "0-0":
            return await client.xlen(stream)
        return group["pending"] + len(await client.xrange(stream, f"({last}", "+", count=1000))


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command, which starts the processes."""
    at_once = work.THREADS if kind in {"short", "slow"} else 100
    command = [sys.executable, "-m", "taskiq", "worker", "peers.taskiq:broker"]
    command += ["--workers", str(processes), "--max-async-tasks", str(at_once)]
    return [[*command, "--ack-type", "when_executed", "--log-level", "ERROR"]]
