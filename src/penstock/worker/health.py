"""Health: whether this worker gets jobs from its store.

Green while the store has answered a claim (or a renewal, while every hand is busy) within the last
seconds. Probes ask for it over HTTP: `health_server.py`.
"""

from __future__ import annotations

from typing import Any

from penstock.app.clock import AnyClock

RED_AFTER = 30.0
Answer = tuple[bool, dict[str, Any]]  # good, and what a probe is told


class Health:
    """When the store last answered, and whether that is recent enough."""

    def __init__(self, clock: AnyClock, red_after: float = RED_AFTER) -> None:
        self.red_after = red_after
        self.draining = False
        self._clock = clock
        self.answered_at = clock.monotonic()  # as if answered at the start
        self.reached_at = self.answered_at  # of any call, also while no claim succeeds
        self.claimed_at: float | None = None  # in wall time, for people

    def claimed(self) -> None:
        self.claimed_at = self._clock.now()
        self.answered()

    def answered(self) -> None:
        self.answered_at = self.reached_at = self._clock.monotonic()

    def reached(self) -> None:
        """A call succeeded that says nothing about claims."""
        self.reached_at = self._clock.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since the store last answered."""
        return self._clock.monotonic() - self.answered_at

    @property
    def green(self) -> bool:
        return self.silence < self.red_after

    @property
    def ready(self) -> bool:
        return self.green and not self.draining
