"""Procrastinate on PostgreSQL, over psycopg 3."""

from __future__ import annotations

import sys
from typing import Any

import procrastinate
from procrastinate.metadata import extract_metadata

from peers import work

_BATCH = 1000
# A pool needs a connection for every job that is about to end.
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=work.URL, min_size=4, max_size=20)
)
TASKS = {name: app.task(name=name)(function) for name, function in work.ASYNC_TASKS.items()}
fan_out = None  # it has none

if work.KIND == "short":

    @app.periodic(cron="*/5 * * * * *")
    @app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
    async def retry_stalled(context: procrastinate.JobContext, timestamp: int) -> None:
        """What the documentation says about the jobs of workers that were killed."""
        del timestamp
        manager = context.app.job_manager
        for job in await manager.get_stalled_jobs(seconds_since_heartbeat=20):
            await manager.retry_job(job)


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "Procrastinate",
        "version": extract_metadata()["version"],
        "bulk": f"batch_defer_async, {_BATCH:,} a call",
        "settings": f"async tasks, concurrency {work.THREADS}, LISTEN on, successful jobs deleted",
        "kill": "a periodic task retries stalled jobs every 5 s (their documentation: every "
        "10 minutes), stalled after 20 s without a heartbeat",
    }


async def open_store() -> None:
    """Make the tables."""
    await app.open_async()
    await app.schema_manager.apply_schema_async()


async def close_store() -> None:
    """Let go of the store."""
    await app.close_async()


async def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = TASKS[task].defer_async
    for number in numbers:
        await put(number=number, text=text)


async def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """A thousand in a statement."""
    for first in range(0, len(numbers), _BATCH):
        part = numbers[first : first + _BATCH]
        await TASKS[task].batch_defer_async(*[{"number": number, "text": text} for number in part])


async def left() -> int:
    """To be done, or being done."""
    counts = await app.job_manager.list_queues_async()
    return sum(count["todo"] + count["doing"] for count in counts)


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command for each process."""
    del kind
    command = [sys.executable, "-m", "procrastinate", "--app", "peers.procrastinate.app", "worker"]
    command += ["--concurrency", str(work.THREADS), "--delete-jobs", "successful"]
    return [command] * processes
