"""The tasks that the benchmark runs: most do nothing, one says when it began."""

from __future__ import annotations

import time

from penstock.app.app import App

app = App()


@app.task(queue="bench")
def nothing(number: int, text: str) -> None:
    """Costs what a job costs when its function costs nothing."""
    del number, text


@app.task(queue="bench")
def gather(results: list[None]) -> None:
    """Takes what many others returned."""
    del results


@app.task(queue="bench")
def begin() -> float:
    """When it began."""
    return time.time()


@app.task(queue="wanted")
def wanted(number: int, text: str) -> None:
    """One of those that are claimed, with many others around."""
    del number, text


@app.task(queue="wanted")
def held(number: int, text: str) -> None:
    """One of those around it that a rule holds back."""
    del number, text


@app.task(queue="other")
def other(number: int, text: str) -> None:
    """One of those around it in another queue."""
    del number, text
