"""Huey on Redis or SQLite, by the URL."""

from __future__ import annotations

import sys
from typing import Any

import huey

from peers import work

_SQLITE = "sqlite:///"


def _open() -> huey.Huey:
    if work.URL.startswith(_SQLITE):
        # fsync: as durable as the other stores of this run.
        return huey.SqliteHuey(
            "bench", filename=work.URL.removeprefix(_SQLITE), fsync=True, results=False
        )
    return huey.RedisHuey("bench", url=work.URL, results=False)


store = _open()
TASKS = {name: store.task(name=name)(function) for name, function in work.TASKS.items()}


@store.task(name="after")
def after(results: list[None]) -> None:
    """The callback of the chord."""
    del results
    work.last()


def about() -> dict[str, Any]:
    """What is measured, and its settings."""
    sqlite = work.URL.startswith(_SQLITE)
    how = "fsync=True, polled every 10 ms" if sqlite else "blocking pop"
    return {
        "library": "Huey",
        "version": huey.__version__,
        "bulk": None,
        "settings": f"results off, {how}, process workers (one each); {work.THREADS} threads where "
        "tasks wait; chord for the fan-out",
        "kill": "nothing to set: a job is taken out of the store before it runs",
    }


def open_store() -> None:
    """Make the tables, where there are any."""
    if isinstance(store, huey.SqliteHuey):
        store.storage.initialize_schema()
    store.pending_count()


def close_store() -> None:
    """Let go of the store."""
    store.storage.close()


def enqueue(task: str, numbers: range, text: str) -> None:
    """One by one."""
    put = TASKS[task]
    for number in numbers:
        put(number, text)


def enqueue_bulk(task: str, numbers: range, text: str) -> None:
    """There is nothing for many but a group, which is enqueued one by one."""
    store.enqueue(huey.group([TASKS[task].s(number, text) for number in numbers]))


def fan_out(count: int) -> None:
    """A chord."""
    nothing = TASKS["nothing"]
    store.enqueue(huey.chord([nothing.s(number, "") for number in range(count)], after.s()))


def left() -> int:
    """In the store; what was taken out of it is no longer known."""
    return store.pending_count()


def workers(kind: str, processes: int) -> list[list[str]]:
    """One consumer with worker processes, or with threads where tasks wait."""
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "peers.huey.store", "--quiet"]
    command += ["--no-periodic", "--delay", "0.01", "--max-delay", "0.01"]
    if kind in {"short", "slow"}:
        return [[*command, "-k", "thread", "-w", str(work.THREADS)]]
    return [[*command, "-k", "process", "-w", str(processes)]]
