"""The time by which calls to the store must have ended, because the process is to exit.

    with deadline.within():      # what this thread asks of a store ends by `deadline.at`
        broker.settle(...)

A process that was told to stop moves `at` from infinity to a time. A store looks at it while it
waits (for an answer, for a lock), so a call that is under way is cut short as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

STOPPING_SECONDS = 5.0  # at most for one call, once there is a deadline: then it is tried again
OVER = "this process is stopping, and its time for calls to the store is over"

_current: ContextVar[CallDeadline | None] = ContextVar("call_deadline", default=None)


class CallDeadline:
    """One for all threads of a process that stop together."""

    def __init__(self) -> None:
        self.at = math.inf  # monotonic; any thread, or a signal handler, may set it at any time

    @contextmanager
    def within(self) -> Generator[None]:
        """Calls of this thread end by the deadline."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)


def call_deadline() -> float:
    """When calls of this thread must have ended, in monotonic seconds; often infinity."""
    deadline = _current.get()
    return math.inf if deadline is None else deadline.at


def call_seconds(usual: float) -> float:
    """How long a call may take that would usually have so many seconds; 0: it must not begin."""
    at = call_deadline()
    if at == math.inf:
        return usual
    return max(0.0, min(usual, STOPPING_SECONDS, at - time.monotonic()))
