"""How a worker stops: the phases, how long each may take, and the deadline of its calls meanwhile.

While it stops, no call to the store outlasts the phase by much: a store that is away or locked must
not keep the worker from going on to the next one, and from exiting in time.
"""

from __future__ import annotations

import time
from enum import IntEnum

from penstock.broker.call_deadline import STOPPING_SECONDS, CallDeadline

ENDING_SECONDS = 2.0  # for interrupted jobs to end
LAST_SECONDS = 5.0  # for the last outcomes to be stored
_MARGIN_SECONDS = 1.0  # a call that would end with the phase is not cut short

monotonic = time.monotonic


class Phase(IntEnum):
    WORKING = 0
    DRAINING = 1  # claims nothing more, lets what runs end
    ENDING = 2  # has interrupted what runs
    LEAVING = 3  # has put back what does not end, and settles the last outcomes
    OVER = 4


class StopPhases:
    """The phase of a worker, and until when. Set by the loop's thread, but for `ask`."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.phase = Phase.WORKING
        self.until = 0.0  # when this phase ends
        self.asked = 0  # how often it was asked to stop
        self.deadline = CallDeadline()

    def ask(self, *, now: bool) -> None:
        """Count one more request to stop; a call that is under way is cut short soon."""
        # First the deadline: the loop replaces it as soon as it sees that it was asked.
        self.deadline.at = min(self.deadline.at, monotonic() + STOPPING_SECONDS)
        self.asked = max(2 if now else 1, self.asked + 1)

    def enter(self, phase: Phase, seconds: float = 0.0) -> None:
        self.phase, self.until = phase, monotonic() + seconds
        self.deadline.at = self.until + _MARGIN_SECONDS

    def over(self) -> bool:
        return monotonic() >= self.until
