"""Tells the store which workers of this host are dead, so that their jobs are ready again at once.

The supervisor adds its own children as they end. `find` adds those of other groups on this host
that were killed together with their supervisor: nobody else would tell before their lease ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.worker.slots_files import SlotsFiles

if TYPE_CHECKING:
    from penstock.app.app import App

_RETRY_SECONDS = 1.0  # after a report that the store did not take
_FIND_SECONDS = 1.0
# A claim that was under way when its process was killed may be carried out after the first report.
_AGAIN_SECONDS = (0.5, 1.5, 4.0)

log = logging.getLogger("penstock.worker")


@dataclass(slots=True)
class _Report:
    """A dead worker, and those of its jobs that had begun, each with how it ended."""

    worker: str
    begun: Mapping[str, str]
    due_at: float
    told: bool = False
    again: deque[float] = field(default_factory=lambda: deque(_AGAIN_SECONDS))


class DeadWorkers:
    """Workers whose processes have ended, until the store knows of each."""

    def __init__(self, app: App, files: SlotsFiles, failed: Callable[[Exception], object]) -> None:
        self._app = app  # not its broker: the store may not be open yet
        self._files = files
        self._failed = failed
        self._reports: list[_Report] = []
        self._find_at = 0.0

    @property
    def untold(self) -> int:
        """Of how many the store has yet to be told."""
        return sum(not report.told for report in self._reports)

    def add(
        self, worker: str, begun: Mapping[str, str], now: float, *, clean: bool = False
    ) -> None:
        """A worker has ended; `clean`: it had settled everything, and had no claim under way."""
        report = _Report(worker, begun, now)
        if clean:
            report.again.clear()
        self._reports.append(report)

    def find(self, own: Collection[str], now: float) -> None:
        """Look for dead workers of this host, once a second; `own` children are not looked at."""
        if now < self._find_at:
            return
        self._find_at = now + _FIND_SECONDS
        known = {*own, *(report.worker for report in self._reports)}
        for worker, held in self._files.left_behind(known):
            log.warning(
                "worker %s of this host was killed with its supervisor while it ran %d jobs: what "
                "it held is ready again",
                worker,
                len(held),
            )
            death = f"ProcessDied: worker {worker} was killed together with its supervisor"
            self.add(worker, {job.id: death for job in held}, now)

    def report(self, now: float) -> None:
        """Tell the store of those that are due."""
        for report in [report for report in self._reports if now >= report.due_at]:
            try:
                recovered = self._app.broker.recover(dead=report.worker, started=report.begun)
            except Exception as error:
                self._failed(error)
                report.due_at = now + _RETRY_SECONDS
                return
            if recovered:
                log.info(
                    "recovered %d jobs of worker %s: they are ready again", recovered, report.worker
                )
            report.told = True
            self._files.remove(report.worker)
            if report.again:
                report.due_at = now + report.again.popleft()
            else:
                self._reports.remove(report)
