"""Wait for a hint of any shard: a thread for each listens, and whoever waits hears them all.

The threads begin with the first `wait`: only workers have them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection

from penstock.brokers.sharded.shards import Shard, Shards

_LISTEN_SECONDS = 10.0
_BEGIN_SECONDS = 2.0
_AGAIN_SECONDS = 1.0  # after a shard could not be listened to


class ShardedWaiting:
    """Hints of all shards as one number that goes up."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._closed = threading.Event()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._hints = 0
        self._seen = threading.local()
        self._news = threading.Condition(threading.RLock())  # a signal handler calls `wake`
        self._pid = 0

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        del queues  # the threads listen for everybody: a hint may come for nothing
        self._begin()
        with self._news:
            seen = getattr(self._seen, "hints", 0)
            self._news.wait_for(lambda: self._hints != seen, timeout)
            self._seen.hints = self._hints
            return self._hints != seen

    def wake(self) -> None:
        with self._news:
            self._hints += 1
            self._news.notify_all()

    def close(self) -> None:
        self._closed.set()
        self.wake()

    def _begin(self) -> None:
        if self._pid == os.getpid() or self._closed.is_set():
            return
        if self._pid:  # forked: threads and locks are the parent's
            self._begin_anew()
        self._pid = os.getpid()
        listens = [self._start(shard) for shard in self._shards.all]
        # What is stored from now on is heard of.
        for event in listens:
            event.wait(_BEGIN_SECONDS)
        self.wake()

    def listen_to(self, shard: Shard) -> None:
        """Listen to a shard that comes later, if the others are listened to."""
        if self._pid == os.getpid() and not self._closed.is_set():
            self._start(shard)

    def _start(self, shard: Shard) -> threading.Event:
        listens = threading.Event()
        name = f"penstock-shard-{shard.name}"
        run = threading.Thread(target=self._listen, args=(shard, listens), name=name, daemon=True)
        run.start()
        return listens

    def _listen(self, shard: Shard, listens: threading.Event) -> None:
        seconds = 0.0  # the first call only begins to listen
        while not self._closed.is_set():
            try:
                if shard.broker().wait(None, seconds) and seconds:
                    self.wake()
            except Exception:  # whoever calls the shard for work hears why
                time.sleep(_AGAIN_SECONDS)
                seconds = 0.0
                self.wake()  # what came meanwhile was not heard
                continue
            seconds = _LISTEN_SECONDS
            listens.set()
