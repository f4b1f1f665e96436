"""Penstock, on SQLite, PostgreSQL or Redis by the URL alone."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import penstock
from peers import work

# Redis is set up as for everyone else, and Penstock wants to be told that this keeps less.
_URL = f"{work.URL}?durability=everysec" if work.URL.startswith("redis:") else work.URL
app = penstock.App(_URL)
TASKS = {
    name: app.task(name=name, queue="bench")(function) for name, function in work.TASKS.items()
}


@app.task(name="after", queue="bench")
def after(results: list[None]) -> None:
    """What needs the output of all others."""
    del results
    work.last()


_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    return {
        "library": "Penstock",
        "version": tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"],
        "bulk": "enqueue_many",
        "settings": f"{work.THREADS} threads a process, all defaults; "
        "enqueue and settle committed as durably as the store is set up, history on; a flow for "
        "the fan-out",
        "kill": "defaults (lease of 15 s)",
    }


def open_store() -> None:
    """Open it, which makes its tables."""
    app.broker.count()


def close_store() -> None:
    """Let go of the store."""
    app.close()


def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = TASKS[task].enqueue
    for number in numbers:
        put(number, text)


def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """`enqueue_many`: a commit for every 10,000."""
    TASKS[task].enqueue_many((number, text) for number in numbers)


def fan_out(count: int) -> None:
    """A flow: a job for each, and one that takes what they return."""
    after.job(TASKS["nothing"].map(range(count), "").output).enqueue()


def left() -> int:
    """Whatever is still to end."""
    return sum(count.total for count in app.broker.count())


def workers(kind: str, processes: int) -> list[list[str]]:
    """One command, whose supervisor starts the processes."""
    del kind
    command = [sys.executable, "-m", "penstock", "worker", "peers.penstock:app"]
    command += ["--processes", str(processes), "--threads", str(work.THREADS)]
    return [[*command, "--url", _URL, "--log-level", "warning"]]
