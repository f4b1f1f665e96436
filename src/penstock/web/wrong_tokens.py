"""Wrong tokens: each is counted, and answered late if there were several; a report a minute.

Only wrong tokens wait. If an address or a name were locked out instead, anybody could keep others
from logging in; a token is too long to be guessed at any speed (`token_text.check_strength`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from starlette.requests import Request

from penstock.app.log_lines import legible

logger = logging.getLogger("penstock.web")

WINDOW_SECONDS = 60.0
FREE = 3  # wrong tokens in a window that are answered at once: typing errors
WAIT_SECONDS = 1.0
MOST_WAITING = 200  # at a time; more are answered at once, so that no flood of them piles up
_MOST_ADDRESSES = 100

Counts = dict[str, int]


class WrongTokens:
    """The wrong tokens that one dashboard was given; `record` writes a number of them down."""

    def __init__(
        self, clock: Callable[[], float], record: Callable[[Counts], Awaitable[None]]
    ) -> None:
        self._clock = clock
        self._record = record
        self._waiting = 0
        self._window_at: float | None = None
        self._in_window = 0
        self._reporting: asyncio.Task[None] | None = None
        self.counts: Counts = {}  # by address, since the last report
        self.total = 0

    async def count(self, request: Request) -> None:
        """Count a wrong token; returns when the answer may be sent."""
        now = self._clock()
        if self._window_at is None or now - self._window_at >= WINDOW_SECONDS:
            self._window_at, self._in_window = now, 0
        self.total += 1
        self._in_window += 1
        address = address_of(request)
        if address not in self.counts and len(self.counts) >= _MOST_ADDRESSES:
            address = "other addresses"
        self.counts[address] = self.counts.get(address, 0) + 1
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.create_task(self._report())
        if self._in_window <= FREE or self._waiting >= MOST_WAITING:
            return
        self._waiting += 1
        try:
            await asyncio.sleep(WAIT_SECONDS)
        finally:
            self._waiting -= 1

    async def _report(self) -> None:
        """The first one at once, then those of a minute together."""
        while self.counts:
            await self._record(self.take())
            await asyncio.sleep(WINDOW_SECONDS)

    def take(self) -> Counts:
        """Log what was counted since the last report, and begin anew."""
        counts, self.counts = self.counts, {}
        text = ", ".join(f"{count:,} from {address}" for address, count in counts.items())
        logger.warning("wrong tokens: %s; %s since the start", text, f"{self.total:,}")
        return counts


def address_of(request: Request) -> str:
    """The client's address; behind a proxy on this machine, the one that it names."""
    return "an unknown address" if request.client is None else legible(request.client.host)[:100]
