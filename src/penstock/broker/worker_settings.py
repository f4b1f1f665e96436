"""What an operator set for a running worker: numbers of its threads and processes, quiet, stop.

The record is under the name of the worker: its `--name`, or `HOST-PID` without one. Its supervisor
reads it and applies it. Under a given name it stands until it is reset, also for the worker's next
start; under `HOST-PID` it is for that process alone. A stop is for who runs at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.broker.checks import check_name, legible
from penstock.errors import Refused
from penstock.rules.rule import Rule

MOST_THREADS = 1_000  # of a child process
MOST_ASYNC_SLOTS = 5_000
MOST_PROCESSES = 1_000


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one worker; None and empty: as it was started."""

    worker: str
    threads: int | None = None  # of each child process
    async_slots: int | None = None
    processes: int | None = None
    queues: Mapping[str, int] = {}  # processes of each queue, for one that was started with --queue
    quiet: bool | None = None  # it claims nothing
    stop_at: float = 0.0  # who runs then stops
    author: str = ""
    reason: str = ""
    set_at: float = 0.0
    # Of one that is put; never kept.
    stop: bool = False

    @property
    def id(self) -> str:
        return self.worker

    @property
    def text(self) -> str:
        """The settings on one line: `threads=20, quiet`."""
        numbers = (
            ("threads", self.threads),
            ("async slots", self.async_slots),
            ("processes", self.processes),
            *((f"processes of {queue}", number) for queue, number in self.queues.items()),
        )
        words = [f"{name}={number}" for name, number in numbers if number is not None]
        return ", ".join([*words, *(["quiet"] if self.quiet else [])]) or "as it was started"


def check_settings(settings: WorkerSettings) -> None:
    """Refuse what no worker can follow."""
    check_name("worker", settings.worker)
    for name, number, least, most in (
        ("threads", settings.threads, 1, MOST_THREADS),
        ("async slots", settings.async_slots, 1, MOST_ASYNC_SLOTS),
        ("processes", settings.processes, 1, MOST_PROCESSES),
        *((f"processes of {name}", number, 0, MOST_PROCESSES)
          for name, number in settings.queues.items()),
    ):  # fmt: skip
        if number is not None and not least <= number <= most:
            raise Refused(f"{number:,} {name}: from {least} to {most:,}")
    for queue in settings.queues:
        check_name("queue", queue)


def signed(settings: WorkerSettings, author: str, reason: str) -> WorkerSettings:
    """The settings as they are put, with who puts them."""
    return msgspec.structs.replace(settings, author=legible(author), reason=legible(reason))


def replaced(before: WorkerSettings | None, given: WorkerSettings, now: float) -> WorkerSettings:
    """What is to be kept when `given` is put: what it does not name stays as it was."""
    if before is None:
        before = WorkerSettings(worker=given.worker)
    names = ("threads", "async_slots", "processes", "quiet")
    said = {name: value for name in names if (value := getattr(given, name)) is not None}
    return msgspec.structs.replace(
        before,
        **said,
        queues={**before.queues, **given.queues},
        stop_at=now if given.stop else before.stop_at,
        author=given.author,
        reason=given.reason,
        set_at=now,
    )


def event_data(
    before: WorkerSettings | None, after: WorkerSettings | None, author: str, reason: str
) -> dict[str, Any]:
    """What the history says of settings that were put or reset."""
    record = after or before
    if record is None:
        return {}
    stopped = after is not None and after.stop_at != (0.0 if before is None else before.stop_at)
    says = "reset" if after is None else "stopped" if stopped else "set"
    return {
        "worker": record.worker,
        "says": says,
        "settings": "" if after is None else after.text,
        "author": legible(author),
        "reason": legible(reason),
    }


def no_rules(record: WorkerSettings) -> Mapping[str, Rule]:
    """None; but as with rules, workers are told that something changed."""
    del record
    return {}
