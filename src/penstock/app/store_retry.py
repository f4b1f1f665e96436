"""How long a running job waits for its store, and what becomes of it if that does not answer.

A restart or a failover takes seconds, and is no reason to fail: what a job asks of its store is
asked again for `STORE_SECONDS`. What it ends with then is marked, so that `run` knows it from an
error of the user's own database, whatever its class, and puts the job back with nothing counted.
A job that has run for days in a process of its own waits for as long as it takes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar, cast

from penstock.errors import JobTimeout, StoreFull, StoreUnreachable, UnknownOutcome

T = TypeVar("T")

STORE_SECONDS = 30.0  # more than a restart or a failover takes, and less than anybody's patience
_PAUSE_FIRST, _PAUSE_LONGEST = 0.1, 1.0
_PAUSE_ENDLESS = 5.0  # of who waits for days
_LOOK_SECONDS = 0.1  # a thread is interrupted between two sleeps, not in one
_AWAY = (StoreUnreachable, StoreFull, UnknownOutcome)
_MARK = "_penstock_asked_by"

log = logging.getLogger("penstock.store")


class Patience:
    """Asks a store again that may be away; of one app, for all of its jobs.

    The wait is bounded for each question and for each outage: many jobs on one event loop, each of
    which holds it up, wait together no longer than one.
    """

    def __init__(self, seconds: float = STORE_SECONDS) -> None:
        self.seconds = seconds
        self._away_since: float | None = None  # monotonic; None: it answered last time

    @property
    def endless(self) -> bool:
        return self.seconds == math.inf

    def ask(self, question: Callable[[], T], deadline: float = math.inf) -> T:
        """What the store says, if it says it in time.

        Only what may be said twice: an answer that was lost is asked for again. At the deadline, in
        monotonic seconds, the job's own time is up, and nobody else can tell it so.
        """
        began = time.monotonic()
        pauses = self._pauses()
        while True:
            try:
                answer = question()
            except _AWAY as error:
                until = time.monotonic() + self._pause(error, began, pauses)
                while (left := until - time.monotonic()) > 0:
                    if time.monotonic() >= deadline:
                        raise JobTimeout from error
                    time.sleep(min(left, _LOOK_SECONDS))
            else:
                self._away_since = None
                return answer

    async def ask_async(self, question: Callable[[], Awaitable[T]]) -> T:
        """As `ask`, without holding up the event loop."""
        import asyncio

        began = time.monotonic()
        pauses = self._pauses()
        while True:
            try:
                answer = await question()
            except _AWAY as error:
                await asyncio.sleep(self._pause(error, began, pauses))
            else:
                self._away_since = None
                return answer

    def _pauses(self) -> Generator[float]:
        pause, longest = _PAUSE_FIRST, _PAUSE_ENDLESS if self.endless else _PAUSE_LONGEST
        while True:
            yield pause
            pause = min(pause * 2, longest)

    def _pause(self, error: Exception, began: float, pauses: Generator[float]) -> float:
        """How long to wait before it is asked again; raises the error if that is too late."""
        now = time.monotonic()
        away_since = self._away_since = self._away_since or now
        left = min(began, away_since) + self.seconds - now
        if left <= 0:
            self.mark(error)
            raise error
        pause = next(pauses)
        if pause == _PAUSE_FIRST:
            log.error("the store does not answer, and is asked again: %s", error)
        return min(pause, left)

    @contextmanager
    def asked_once(self) -> Generator[None]:
        """Around what cannot be asked again: the store's error is marked at once."""
        try:
            yield
        except _AWAY as error:
            self.mark(error)
            raise

    def mark(self, error: BaseException) -> None:
        """Remember that this is an error of the store, and not of the user's."""
        setattr(error, _MARK, self)

    def gave_up_with(self, error: BaseException) -> bool:
        """Whether the store's absence is what this error says: itself, or as what it is from.

        A group of errors does if each of them does.
        """
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return all(self.gave_up_with(each) for each in group.exceptions)
        return any(getattr(each, _MARK, None) is self for each in (error, error.__cause__))


until_it_answers = Patience(math.inf).ask
