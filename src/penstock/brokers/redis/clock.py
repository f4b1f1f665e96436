"""The clocks of the store: the server's time, for leases as well."""

from __future__ import annotations

from penstock.app.clock import AnyClock
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.server_clock import StoreClock, ticks


def server_clock(server: ServerCalls) -> StoreClock:
    """The server's time, read now and then."""

    def ask() -> None:
        asked_at = ticks()
        seconds, microseconds = server.call("TIME")
        clock.measured(int(seconds) + int(microseconds) / 1e6, asked_at, ticks())

    clock = StoreClock(ask)
    return clock


class LeaseClock:
    """What leases run in: the server's time, since workers of several machines compare it."""

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock

    def now(self) -> float:
        if self._clock.stale():
            self._clock.refresh()
        return self._clock.now()

    monotonic = now


def lease_clock(clock: AnyClock) -> AnyClock:
    return LeaseClock(clock) if isinstance(clock, StoreClock) else clock
