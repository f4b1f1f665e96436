"""The tasks of the benchmark: most do nothing, one returns when it started."""

from __future__ import annotations

import time

from penstock.app.app import App

app = App()


@app.task(queue="bench")
def nothing(number: int, text: str) -> None:
    """Does nothing, so that only the cost of Penstock is measured."""
    del number, text


@app.task(queue="bench")
def gather(results: list[None]) -> None:
    """Takes the results of many others."""
    del results


@app.task(queue="bench")
def begin() -> float:
    """Returns when it started."""
    return time.time()


@app.task(queue="wanted")
def wanted(number: int, text: str) -> None:
    """For jobs that are claimed from a store with many others."""
    del number, text


@app.task(queue="wanted")
def held(number: int, text: str) -> None:
    """For other jobs, of a paused task."""
    del number, text


@app.task(queue="other")
def other(number: int, text: str) -> None:
    """For other jobs, in other queues."""
    del number, text
