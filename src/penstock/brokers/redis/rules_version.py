"""The version of the rules, which workers ask for before every start.

A process asks the server at most every `FRESH_SECONDS`. Whoever changes a rule waits for longer
than that before the call returns: from then on nobody who reaches the store goes by the old rules.
"""

from __future__ import annotations

import time

from penstock.brokers.redis.connection import ServerCalls
from penstock.errors import StoreUnreachable

FRESH_SECONDS = 0.05


class RulesVersion:
    """As this process knows it; while the store does not answer, as it was."""

    def __init__(self, server: ServerCalls, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._server = server
        self._fresh_seconds = fresh_seconds
        self._known: tuple[int, float] | None = None  # and until when that is good

    def __call__(self) -> int:
        known, now = self._known, time.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        try:
            version = int(self._server.call("GET", f"{self._server.prefix}rv") or 0)
        except StoreUnreachable:
            if known is None:
                return 0
            version = known[0]
        self._known = (version, now + self._fresh_seconds)
        return version

    def wait_until_known(self) -> None:
        """A rule was changed: wait until no process goes by the rules from before."""
        self._known = None
        time.sleep(2 * self._fresh_seconds)
