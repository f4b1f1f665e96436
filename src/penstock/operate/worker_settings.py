"""Settings of workers as programs read them, and workers with what they run now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, TypedDict

from penstock.broker.filter import Filter
from penstock.broker.views import Page, WorkerRow
from penstock.broker.worker_settings import WorkerSettings
from penstock.job import Job, State
from penstock.operate.to_json import iso

MOST_HELD = 1000  # running jobs that are read, of all workers together


class WorkerSettingsJson(TypedDict):
    """What an operator set for a worker; null: as it was started."""

    worker: str
    threads: int | None
    async_slots: int | None
    processes: int | None
    queues: dict[str, int]
    quiet: bool
    author: str
    reason: str
    set_at: str | None


def settings_json(settings: WorkerSettings) -> WorkerSettingsJson:
    return {
        "worker": settings.worker,
        "threads": settings.threads,
        "async_slots": settings.async_slots,
        "processes": settings.processes,
        "queues": dict(settings.queues),
        "quiet": bool(settings.quiet),
        "author": settings.author,
        "reason": settings.reason,
        "set_at": iso(settings.set_at or None),
    }


def jobs_by_worker(find: Callable[..., Page]) -> dict[str, list[Job[Any]]]:
    """The jobs that run now, by the id of the worker process that holds them."""
    held: dict[str, list[Job[Any]]] = {}
    for job in find(Filter(state=(State.RUNNING,)), limit=MOST_HELD).jobs:
        held.setdefault(job.worker or "", []).append(job)
    return held


def unknown_worker_text(rows: Sequence[WorkerRow], name: str) -> str:
    """A sentence if no worker of this name is alive, with similar names; else nothing."""
    known = {row.group for row in rows if row.group and row.alive}
    if name in known:
        return ""
    near = get_close_matches(name, sorted(known), n=2) or sorted(known)[:5]
    there = f"; there are {', '.join(near)}" if near else ""
    return f"no worker named {name} is alive{there}"
