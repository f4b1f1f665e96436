"""What every client that watches is told: that there may be work, and that rules have changed.

One thread waits for hints of the store, and looks at the version of its rules, on behalf of all;
while nobody watches there is no such thread. Whoever sets a pause waits until every watching client
has heard of it; the stream of one that does not answer is cut, and a client without its stream asks
before every start.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from penstock.broker.protocol import Broker
from penstock.errors import PenstockError, Refused

BEAT_SECONDS = 0.5  # between two messages of a stream without news
HEAR_SECONDS = 1.0  # so long a pause waits for the clients
RULES_SECONDS = 0.02  # between two looks at the version of the rules
MOST_WATCHES = 2000
_HINT_SECONDS = 5.0
_DRAIN_SECONDS = 1.0
_AGAIN_SECONDS = 0.5  # after the store did not answer

log = logging.getLogger("penstock.manager")


class Version:
    """The version of the store's rules as a number that only grows, within one instance."""

    def __init__(self, read: Callable[[], int]) -> None:
        self.instance = uuid.uuid4().hex[:16]
        self._read = read
        self._last: int | None = None
        self._number = 0
        self._lock = threading.Lock()

    def number(self) -> int:
        """One more than before if the rules have changed; cheap."""
        with self._lock:
            if (now := self._read()) != self._last:
                self._last = now
                self._number += 1
            return self._number


class _Watch:
    """One stream: what it has to send next, and which version its client obeys."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        self.heard = 0
        self.open = True

    def tell(self) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._news.set)

    def cut(self) -> None:
        self.open = False
        self.tell()

    async def next(self) -> None:
        """Wait for news, or for the next beat."""
        try:
            await asyncio.wait_for(self._news.wait(), BEAT_SECONDS)
        except TimeoutError:
            return
        self._news.clear()


class Watching:
    """The streams of all clients of one store."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.version = Version(broker.traits.rules_version)
        self.hints = 0
        self._broker = broker
        self._loop = loop
        self._watches: dict[str, _Watch] = {}
        self._changed = threading.Condition()
        self._threads = 0  # how often the threads below were started: those of before end
        self._stopped = False
        self._drained = threading.Event()  # old hints are used up

    async def news(self, name: str) -> AsyncIterator[tuple[int, int]]:
        """For the client of this name: hints so far and the version of the rules, every beat."""
        watch = self._add(name)
        # The first message is a hint; what the store hinted at before must not come as a second.
        await asyncio.to_thread(self._drained.wait, _DRAIN_SECONDS)
        try:
            while watch.open:
                yield self.hints, self.version.number()
                await watch.next()
        finally:
            with self._changed:
                if self._watches.get(name) is watch:
                    del self._watches[name]
                self._changed.notify_all()

    def _add(self, name: str) -> _Watch:
        watch = _Watch(self._loop)
        with self._changed:
            if len(self._watches) >= MOST_WATCHES:
                raise Refused(f"{MOST_WATCHES:,} clients watch this manager already: start another")
            if (before := self._watches.get(name)) is not None:
                before.cut()
            begins = not self._watches
            self._watches[name] = watch
            if begins:
                self._threads += 1
                self._drained.clear()
                for look in (self._look_for_hints, self._look_at_rules):
                    threading.Thread(target=look, args=(self._threads,), daemon=True).start()
        return watch

    def heard(self, name: str, number: int) -> None:
        with self._changed:
            if (watch := self._watches.get(name)) is not None:
                watch.heard = max(watch.heard, number)
                self._changed.notify_all()

    def wait_until_heard(self) -> None:
        """Return once every client obeys the rules as they are now; the stream of others is cut."""
        number = self.version.number()
        self._tell_all()
        with self._changed:
            self._changed.wait_for(lambda: not self._deaf_to(number), HEAR_SECONDS)
            for watch in self._deaf_to(number):
                watch.cut()

    def _deaf_to(self, number: int) -> list[_Watch]:
        return [watch for watch in self._watches.values() if watch.open and watch.heard < number]

    def _tell_all(self) -> None:
        with self._changed:
            for watch in self._watches.values():
                watch.tell()

    def _current(self, thread: int) -> bool:
        return bool(self._watches) and thread == self._threads and not self._stopped

    def _look_for_hints(self, thread: int) -> None:
        until = time.monotonic() + _DRAIN_SECONDS
        with suppress(PenstockError):
            while self._broker.wait(None, 0.0) and time.monotonic() < until:
                pass
        self._drained.set()
        while self._current(thread):
            try:
                if self._broker.wait(None, _HINT_SECONDS) and not self._stopped:
                    self.hints += 1
                    self._tell_all()
            except PenstockError as error:
                log.debug("no hints: %s", error)
                time.sleep(_AGAIN_SECONDS)

    def _look_at_rules(self, thread: int) -> None:
        known = self.version.number()
        while self._current(thread):
            time.sleep(RULES_SECONDS)
            if (now := self.version.number()) != known:
                known = now
                self._tell_all()

    def stop(self) -> None:
        self._stopped = True
        with self._changed:
            for watch in self._watches.values():
                watch.cut()
        self._broker.wake()
