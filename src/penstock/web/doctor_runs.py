"""Runs of the doctor for the dashboard: on request, one at a time, each on a thread of its own.

A request waits a bounded time; if the store does not answer by then, the findings are shown later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.operate.doctor import Colour, Finding

LONGEST_SECONDS = 10.0


class DoctorRun(NamedTuple):
    """The findings of one run, and when it began."""

    at: float
    findings: Sequence[Finding]


class DoctorRuns:
    """The last run, and the one that is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.last: DoctorRun | None = None

    @property
    def under_way(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def run(
        self, examine: Callable[[], list[Finding]], at: float, seconds: float = LONGEST_SECONDS
    ) -> None:
        """Start a run unless one is under way, and wait for it no longer than this."""
        with self._lock:
            if self.under_way:
                return
            thread = threading.Thread(
                target=self._run, args=(examine, at), name="penstock-examining", daemon=True
            )
            self._thread = thread
            thread.start()
        thread.join(seconds)

    def _run(self, examine: Callable[[], list[Finding]], at: float) -> None:
        try:
            findings = examine()
        except PenstockError as error:
            findings = [Finding("store", Colour.RED, str(error), "see the dashboard's own log")]
        self.last = DoctorRun(at, findings)
