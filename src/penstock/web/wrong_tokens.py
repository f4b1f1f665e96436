"""Wrong tokens: each is counted, and answered late if there were several; a log line a minute.

Only wrong tokens wait. If an address or a name were locked out instead, anybody could keep others
from logging in; a token is too long to be guessed at any speed (`access.check_strength`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from starlette.requests import Request

from penstock.app.log_lines import legible

logger = logging.getLogger("penstock.web")

WINDOW_SECONDS = 60.0
FREE = 3  # wrong tokens in a window that are answered at once: typing errors
WAIT_SECONDS = 1.0
MOST_WAITING = 200  # at a time; more are answered at once, so that no flood of them piles up
_MOST_ADDRESSES = 100


class WrongTokens:
    """The wrong tokens that one dashboard was given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting = 0
        self._window_at: float | None = None
        self._logged_at: float | None = None
        self._in_window = 0
        self._not_logged: Counter[str] = Counter()
        self.total = 0

    async def count(self, request: Request) -> None:
        """Count a wrong token; returns when the answer may be sent."""
        now = self._clock()
        if self._window_at is None or now - self._window_at >= WINDOW_SECONDS:
            self._window_at, self._in_window = now, 0
        self.total += 1
        self._in_window += 1
        self._log(address_of(request), now)
        if self._in_window <= FREE or self._waiting >= MOST_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.sleep(WAIT_SECONDS)
        finally:
            self._waiting -= 1

    def _log(self, address: str, now: float) -> None:
        known = address in self._not_logged or len(self._not_logged) < _MOST_ADDRESSES
        self._not_logged[address if known else "other addresses"] += 1
        if self._logged_at is not None and now - self._logged_at < WINDOW_SECONDS:
            return
        self._logged_at = now
        counted = ", ".join(f"{count:,} from {where}" for where, count in self._not_logged.items())
        logger.warning("wrong tokens: %s; %s since the start", counted, f"{self.total:,}")
        self._not_logged.clear()


def address_of(request: Request) -> str:
    """The client's address; behind a proxy on this machine, the one that it names."""
    return "an unknown address" if request.client is None else legible(request.client.host)[:100]
