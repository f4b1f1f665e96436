"""Hints: a thread that listens while somebody waits, and whoever it wakes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection

from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.wire import Wire
from penstock.errors import PenstockError

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 0.5
_QUIET_SECONDS = 60.0  # a connection that is idle for so long is asked whether it is alive
_SUBSCRIBE_SECONDS = 5.0


class Hints:
    """One listener for all threads of a process that wait; started by the first of them."""

    def __init__(self, server: ServerCalls) -> None:
        self._server = server
        self._changed = threading.Condition(threading.RLock())  # a signal handler may call wake()
        self._count = 1
        self._seen = threading.local()
        self._listener: threading.Thread | None = None
        self._listens = False
        self._pid = os.getpid()
        self._closed = False

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:  # noqa: ARG002  a hint may come for nothing
        """Sleep until a hint or the timeout; the first time, what was before is a hint."""
        until = time.monotonic() + timeout
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: self._listens or self._closed, _SUBSCRIBE_SECONDS)
            seen = getattr(self._seen, "count", 0)
            self._changed.wait_for(lambda: self._count != seen, max(0.0, until - time.monotonic()))
            self._seen.count = self._count
            return self._count != seen

    def wake(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def close(self) -> None:
        self._closed = True
        self.wake()

    def _start(self) -> None:
        alive = self._listener is not None and self._listener.is_alive()
        if self._closed or (alive and self._pid == os.getpid()):
            return
        self._pid = os.getpid()
        self._listens = False
        self._listener = threading.Thread(
            target=self._listen, args=(self._pid,), name="penstock hints", daemon=True
        )
        self._listener.start()

    def _listen(self, pid: int) -> None:
        while not self._closed and pid == os.getpid():
            wire: Wire | None = None
            try:
                wire = self._server.open_wire()
                wire.send(
                    [("SUBSCRIBE", f"{self._server.prefix}wake")],
                    time.monotonic() + _SUBSCRIBE_SECONDS,
                )
                wire.reply(time.monotonic() + _SUBSCRIBE_SECONDS)
                self._hear(wire)
            except (PenstockError, OSError):
                # Whoever waits looks for itself meanwhile, as often as its poll says.
                self._say(listens=True)
                time.sleep(_AGAIN_SECONDS)
            finally:
                if wire is not None:
                    wire.close()

    def _hear(self, wire: Wire) -> None:
        self._say(listens=True)  # what came before it listened is a hint as well
        quiet_since = time.monotonic()
        while not self._closed:
            try:
                wire.reply(time.monotonic() + _LOOK_SECONDS)
            except TimeoutError:
                if time.monotonic() - quiet_since > _QUIET_SECONDS:
                    wire.send([("PING",)], time.monotonic() + _LOOK_SECONDS)
                    wire.reply(time.monotonic() + _SUBSCRIBE_SECONDS)
                    quiet_since = time.monotonic()
                continue
            quiet_since = time.monotonic()
            self.wake()

    def _say(self, *, listens: bool) -> None:
        with self._changed:
            self._listens = listens
            self._count += 1
            self._changed.notify_all()
