"""Celery on Redis, set up as its optimising guide and its Redis page say."""

from __future__ import annotations

import sys
from typing import Any

import celery
from celery import chord

from peers import work

app = celery.Celery("bench", broker=work.URL, backend=work.URL)
app.conf.update(
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
if work.KIND == "short":
    # For what a killed worker held: late acknowledgement, and a visibility timeout to wait for.
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_transport_options={"visibility_timeout": 20, "unacked_restore_throttle": 1},
    )

TASKS = {name: app.task(name=name)(function) for name, function in work.TASKS.items()}
counted = app.task(name="counted", ignore_result=False)(work.nothing)


@app.task(name="after")
def after(results: list[None]) -> None:
    """The body of the chord."""
    del results
    work.last()


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "Celery",
        "version": celery.__version__,
        "bulk": "one by one inside kombu's producer.batch()",
        "settings": "prefork, results ignored, prefetch multiplier 128, no gossip, mingle or "
        f"heartbeat; {work.THREADS} threads where tasks wait; chord for the fan-out",
        "kill": "acks_late, reject_on_worker_lost, prefetch 1, visibility timeout 20 s "
        "(default: an hour), unacked_restore_throttle 1",
    }


def open_store() -> None:
    """Nothing to make; the first connection is not measured."""
    app.connection_for_write().ensure_connection(max_retries=3)


def close_store() -> None:
    """Connections stay: the store is flushed, not replaced."""


def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one, over the producer pool that is the default."""
    put = TASKS[task].delay
    for number in numbers:
        put(number, text)


def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """Over one producer, whose batches are pipelined to Redis."""
    with app.producer_or_acquire() as producer, producer.batch():
        for number in numbers:
            TASKS[task].apply_async((number, text), producer=producer)


def fan_out(count: int) -> None:
    """A chord."""
    chord([counted.s(number, "") for number in range(count)])(after.s())


def left() -> int:
    """In the list, or taken and not acknowledged."""
    with app.connection_for_read() as connection:
        client = connection.default_channel.client
        return client.llen("celery") + client.hlen("unacked")


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command with a pool: processes, or threads where tasks wait."""
    waits = kind in {"short", "slow"}
    pool = ["--pool", "threads", "-c", str(work.THREADS)]
    if not waits:
        pool = ["--pool", "prefork", "-c", str(processes), "--prefetch-multiplier", "128"]
    command = [sys.executable, "-m", "celery", "-A", "peers.celery:app", "worker", *pool]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    return [[*command, "-l", "ERROR", "-n", "bench@localhost"]]
