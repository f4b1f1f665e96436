"""RQ on Redis; its worker runs one job at a time: where tasks wait, as many workers as threads."""

from __future__ import annotations

import sys
from typing import Any

import redis
import rq

from peers import work

_BATCH = 1000
_client = redis.Redis.from_url(work.URL)
queue = rq.Queue("bench", connection=_client)
# What a killed worker held is found when its time is over, and run if retries are left.
_CARE: dict[str, Any] = {"job_timeout": 10, "retry": rq.Retry(max=3)}


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "RQ",
        "version": rq.__version__,
        "bulk": f"enqueue_many, {_BATCH:,} a call",
        "settings": "SimpleWorker (no process for each job), results not kept; where tasks wait "
        f"{work.THREADS} workers; a job that depends on the others for the fan-out",
        "kill": "job_timeout 10 s (default: 180) and 3 retries on the job (default: none), "
        "maintenance every 5 s (default: 10 minutes)",
    }


def open_store() -> None:
    """Nothing to make; the first connection is not measured."""
    _client.ping()


def close_store() -> None:
    """Connections stay: the store is flushed, not replaced."""


def _options(task: str) -> dict[str, Any]:
    return {"result_ttl": 0, **(_CARE if task == "short" else {})}


def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put, options = queue.enqueue, _options(task)
    for number in numbers:
        put(work.TASKS[task], number, text, **options)


def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """A thousand in a pipeline."""
    for first in range(0, len(numbers), _BATCH):
        _many(task, numbers[first : first + _BATCH], text)


def _many(task: str, numbers: range, text: str) -> list[rq.job.Job]:
    made = rq.Queue.prepare_data
    options = _options(task)
    return queue.enqueue_many([made(work.TASKS[task], (n, text), **options) for n in numbers])


def fan_out(count: int) -> None:
    """A job that depends on all others; what they are is kept until it has run."""
    made = rq.Queue.prepare_data
    jobs = [made(work.nothing, (number, ""), result_ttl=60) for number in range(count)]
    queue.enqueue(work.last, depends_on=queue.enqueue_many(jobs), result_ttl=0)


def left() -> int:
    """Queued, started, or waiting for its retry."""
    registries = (queue.started_job_registry, queue.scheduled_job_registry)
    return queue.count + sum(_client.zcard(registry.key) for registry in registries)


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command for each process."""
    count = work.THREADS if kind in {"short", "slow"} else processes
    command = [sys.executable, "-m", "rq.cli", "worker", "bench", "--quiet", "--url", work.URL]
    command += ["--worker-class", "rq.SimpleWorker"]
    command += ["--maintenance-interval", "5"] if kind == "short" else []
    return [command] * count
