"""A worker in this process, for tests of what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock import App, BatchTask, State
from penstock.broker.protocol import Broker
from penstock.worker import Worker

SOON = 10.0


@contextmanager
def working(app: App, **options: Any) -> Iterator[Worker]:
    """A worker in a thread of its own, stopped at the end."""
    worker = Worker(app, **options)
    thread = threading.Thread(target=worker.work)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop(now=True)
        thread.join(SOON)
        assert not thread.is_alive()


def drain(app: App, **options: Any) -> Worker:
    """A worker that has run all there was."""
    worker = Worker(app, drain=True, **options)
    worker.work()
    return worker


def until(broker: Broker, condition: Callable[[], object]) -> None:
    """Wait for something that changes with the store."""
    for _ in range(int(SOON / 0.05)):
        if condition():
            return
        broker.wait(None, 0.05)
    raise AssertionError("it did not happen in time")


def attempts(app: App, job_id: str) -> list[tuple[State | None, str | None]]:
    """Where each attempt at a job led."""
    return [
        (event.state, event.reason)
        for event in app.broker.history(job=job_id)
        if event.kind == "attempt"
    ]


def doubling(app: App, **options: Any) -> tuple[BatchTask[int, int], list[list[int]]]:
    """A batch task that doubles numbers, and the calls that it had."""
    calls: list[list[int]] = []

    @app.batch_task(name="double", **options)
    def double(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return [2 * number for number in numbers]

    return double, calls
