"""How long a running job waits for its store, and what becomes of it if that does not answer.

A restart or a failover takes seconds, and is no reason to fail: what a job asks of its store is
asked again for `STORE_SECONDS`. The last error is then marked, so that `run` can tell it from an
error of the user's own database, and puts the job back without counting a failure. A detached job,
which may have run for days, waits for as long as it takes, and so does a process that only starts.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar, cast

from penstock.errors import JobTimeout, StoreFull, StoreUnreachable, UnknownOutcome, WrongUrl

T = TypeVar("T")

STORE_SECONDS = 30.0  # more than a restart or a failover takes, and less than anybody's patience
_PAUSE_FIRST, _PAUSE_LONGEST = 0.1, 1.0
_PAUSE_ENDLESS = 5.0  # of whoever may wait for days
_LOOK_SECONDS = 0.1  # a thread is interrupted between two sleeps, not in one
_AWAY = (StoreUnreachable, StoreFull, UnknownOutcome)
_MARK = "_penstock_asked_by"

log = logging.getLogger("penstock.store")


class Patience:
    """Retries calls of a store that may be away; one per app, shared by its jobs.

    The wait is bounded per call and per outage: the waits of jobs that block one event loop do not
    add up.
    """

    def __init__(self, seconds: float = STORE_SECONDS) -> None:
        self.seconds = seconds
        self._away_since: float | None = None  # monotonic; None: it answered last time

    @property
    def endless(self) -> bool:
        return self.seconds == math.inf

    def ask(self, question: Callable[[], T], deadline: float = math.inf) -> T:
        """Call `question` until the store answers or the time is up.

        It must be safe to call twice, because an answer may be lost. At the deadline, in monotonic
        seconds, JobTimeout is raised here: nothing else can interrupt a job that waits like this.
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
        """Seconds until the next try; raises the error if the time is up."""
        now = time.monotonic()
        away_since = self._away_since = self._away_since or now
        left = min(began, away_since) + self.seconds - now
        if left <= 0:
            self.mark(error)
            raise error
        pause = next(pauses)
        if pause == _PAUSE_FIRST:
            log.error("the store does not answer, retrying: %s", error)
        return min(pause, left)

    @contextmanager
    def mark_errors(self) -> Generator[None]:
        """Around a call that must not be repeated: an error of the store is marked at once."""
        try:
            yield
        except _AWAY as error:
            self.mark(error)
            raise

    def mark(self, error: BaseException) -> None:
        """Remember that this is an error of the store, and not of the user's."""
        setattr(error, _MARK, self)

    def is_marked(self, error: BaseException) -> bool:
        """Whether this error, or its cause, is of a store that was away; of a group, all of it."""
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return all(self.is_marked(part) for part in group.exceptions)
        return any(getattr(one, _MARK, None) is self for one in (error, error.__cause__))


until_it_answers = Patience(math.inf).ask


def open_when_reachable(
    open_store: Callable[[], object],
    failed: Callable[[Exception], object],
    pause: Callable[[float], bool],
) -> bool:
    """Call `open_store` until the store answers; False if `pause` returned True: stop waiting.

    `failed` is called with each error, `pause` with the seconds until the next try. What waiting
    cannot mend (a wrong URL or password, another schema) is raised.
    """
    seconds = _PAUSE_FIRST
    while True:
        try:
            open_store()
        except WrongUrl:
            raise
        except (StoreUnreachable, StoreFull) as error:
            failed(error)
        else:
            return True
        if pause(seconds * random.uniform(0.5, 1.0)):  # noqa: S311  not a secret
            return False
        seconds = min(seconds * 2, _PAUSE_ENDLESS)
