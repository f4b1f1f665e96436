"""PgQueuer on PostgreSQL, over asyncpg, which its documentation recommends."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries, run

from peers import work

_BATCH = 1000
_connections: list[asyncpg.Connection] = []
fan_out = None  # it has none


@asynccontextmanager
async def manager() -> AsyncGenerator[PgQueuer]:
    """What its `run` runs."""
    connection = await asyncpg.connect(work.URL)
    try:
        made = PgQueuer.from_asyncpg_connection(connection)
        for name, function in work.ASYNC_TASKS.items():
            made.entrypoint(name)(_decoded(function))
        yield made
    finally:
        await connection.close()


def _decoded(function: Callable[[int, str], Awaitable[None]]) -> Callable[[Job], Awaitable[None]]:
    """A payload is bytes here: what they mean is up to the user, and JSON with everyone else."""

    async def decoded(job: Job) -> None:
        number, text = json.loads(job.payload or b"")
        await function(number, text)

    return decoded


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "PgQueuer",
        "version": version("pgqueuer"),
        "bulk": f"enqueue with lists, {_BATCH:,} a call",
        "settings": "async tasks, batches of 100, tables durable; where tasks wait, batches of 5 "
        f"and at most {work.THREADS} at a time; payloads of JSON",
        "kill": "heartbeat timeout 20 s (default: 30)",
    }


def _queries() -> Queries:
    return Queries(AsyncpgDriver(_connections[0]))


async def open_store() -> None:
    """Make the tables."""
    _connections.append(await asyncpg.connect(work.URL))
    await _queries().install()


async def close_store() -> None:
    """Let go of the store."""
    while _connections:
        await _connections.pop().close()


async def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = _queries().enqueue
    for number in numbers:
        await put(task, json.dumps([number, text]).encode())


async def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """A thousand in a statement."""
    put = _queries().enqueue
    for first in range(0, len(numbers), _BATCH):
        part = numbers[first : first + _BATCH]
        payloads = [json.dumps([number, text]).encode() for number in part]
        await put([task] * len(part), payloads, [0] * len(part))


async def left() -> int:
    """In the queue, picked or not."""
    return sum(row.count for row in await _queries().queue_size())


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command for each process: this file, for `pgq run` fails with the Typer of its lock."""
    del kind
    return [[sys.executable, "-m", "peers.pgqueuer"]] * processes


def _limits() -> dict[str, Any]:
    if work.KIND not in {"short", "slow"}:
        return {"batch_size": 100}
    # The bound on tasks must not be less than twice the batch.
    limits = {"batch_size": work.THREADS // 2, "max_concurrent_tasks": work.THREADS}
    return limits | ({"heartbeat_timeout": timedelta(seconds=20)} if work.KIND == "short" else {})


if __name__ == "__main__":
    uvloop.run(run(manager, **_limits()))  # as `pgq` does
