"""How a store is asked that may be away: once, or until it answers.

An ordinary job fails, and is run again: that costs little. One that has run for days in a process
of its own waits, because a restart of the database is no reason to do its work once more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from penstock.errors import StoreFull, StoreUnreachable, UnknownOutcome

T = TypeVar("T")

_PAUSE_FIRST, _PAUSE_LONGEST = 0.1, 5.0

log = logging.getLogger("penstock.store")


class Ask(Protocol):
    """Puts a question to the store, and gives its answer."""

    def __call__(self, question: Callable[[], T], /) -> T: ...


def once(question: Callable[[], T]) -> T:
    """Whatever comes of it."""
    return question()


def until_it_answers(question: Callable[[], T]) -> T:
    """What the store says, however long it takes to say it.

    Only what may be said twice: an answer that was lost is asked for again.
    """
    pause = _PAUSE_FIRST
    while True:
        try:
            return question()
        except (StoreUnreachable, StoreFull, UnknownOutcome) as error:
            if pause == _PAUSE_FIRST:
                log.error("the store does not answer, and is asked again: %s", error)  # noqa: TRY400
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_LONGEST)
