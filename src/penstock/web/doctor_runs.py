"""The doctor on the dashboard: examines the store when somebody asks, one examination at a time.

It runs on a thread of its own: a store that does not answer holds up whoever asked for so long and
no longer, and the findings are there once it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.operate.doctor import Colour, Finding

LONGEST_SECONDS = 10.0


class Examined(NamedTuple):
    """What an examination found, and when it began."""

    at: float
    findings: Sequence[Finding]


class Examining:
    """The last examination of one store, and the one that is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.last: Examined | None = None

    @property
    def under_way(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def examine(
        self, look: Callable[[], list[Finding]], at: float, seconds: float = LONGEST_SECONDS
    ) -> None:
        """Begin, unless somebody did, and wait for the findings no longer than this."""
        with self._lock:
            if self.under_way:
                return
            thread = threading.Thread(
                target=self._run, args=(look, at), name="penstock-examining", daemon=True
            )
            self._thread = thread
            thread.start()
        thread.join(seconds)

    def _run(self, look: Callable[[], list[Finding]], at: float) -> None:
        try:
            findings = look()
        except PenstockError as error:
            findings = [Finding("store", Colour.RED, str(error), "see the dashboard's own log")]
        self.last = Examined(at, findings)
