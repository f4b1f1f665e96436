"""The stream on which a manager says that there may be work, and that rules have changed.

Only workers have one: it begins with the first `wait`, or the first look at the version of the
rules by whoever runs jobs. Without it, each look asks the manager.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
import weakref
from typing import Any

from penstock.brokers.remote.connection import ManagerConnection
from penstock.brokers.remote.forking import calls_under_way
from penstock.manager.contract import store_pb2 as messages

LIVE_SECONDS = 1.5  # a stream that was silent for so long is not relied on: three beats
_BEGIN_SECONDS = 2.0
_HEARD_SECONDS = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # before it is opened again


class Watch:
    """One thread of this process reads the stream; others wait for what it hears."""

    def __init__(self, connection: ManagerConnection) -> None:
        self._connection = connection
        self._hints = 0
        self._seen = threading.local()
        self._news = threading.Condition(threading.RLock())  # a signal handler calls `wake`
        self._began = threading.Event()
        self._pid = 0
        self._stream: Any = None
        self._heard_at = 0.0
        self._closed = False
        self._known = ("", 0)
        self._version = 0
        _watches.add(self)
        calls_under_way.interrupts.add(self)

    @property
    def live(self) -> bool:
        """Whether a change of the rules would have been heard by now."""
        return self._pid == os.getpid() and time.monotonic() - self._heard_at < LIVE_SECONDS

    @property
    def version(self) -> int:
        """A number that grows with every change of the rules that was heard of."""
        return self._version

    def hear(self, rules: Any) -> None:
        """Take note of a version of the rules; answers may come in another order than was asked."""
        with self._news:
            instance, number = self._known
            if rules.instance != instance or rules.number > number:
                self._known = (rules.instance, rules.number)
                self._version += 1

    def forget(self) -> None:
        """The rules may have changed: nobody can be asked."""
        with self._news:
            self._version += 1

    def wait(self, timeout: float) -> bool:
        self.begin()
        with self._news:
            seen = getattr(self._seen, "hints", 0)
            self._news.wait_for(lambda: self._hints != seen, timeout)
            self._seen.hints = self._hints
            return self._hints != seen

    def wake(self) -> None:
        with self._news:
            self._hints += 1
            self._news.notify_all()

    def begin(self) -> None:
        """Open the stream if this process has none; returns when it is open, or a moment later."""
        if self._pid == os.getpid() or self._closed:
            return
        with self._news:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            self._began = threading.Event()
            threading.Thread(target=self._run, name="penstock-watch", daemon=True).start()
        self._began.wait(_BEGIN_SECONDS)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                with calls_under_way.one():
                    self._read()
                pause = _FIRST_PAUSE
            except Exception as error:
                if self._heard_at:
                    pause = _FIRST_PAUSE
                self._ended_by(error)
            self._heard_at = 0.0
            self._began.set()
            if not self._closed:
                time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  no secret
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _ended_by(self, error: Any) -> None:
        if hasattr(error, "code"):
            self._connection.lost(error)

    def _read(self) -> None:
        name = uuid.uuid4().hex
        self._stream = stream = self._connection.stream(
            "Watch", messages.WatchRequest(watch=name), messages.News, None
        )
        hints: int | None = None
        told: Any = None
        for news in stream:
            self.hear(news.rules)
            if told != (news.rules.instance, news.rules.number):
                told = (news.rules.instance, news.rules.number)
                self._tell(name, news.rules)
            self._heard_at = time.monotonic()
            if news.hints != hints:  # the first of a stream is a hint: some may have been missed
                hints = news.hints
                self.wake()
            self._began.set()

    def _tell(self, name: str, rules: Any) -> None:
        request = messages.HeardRequest(watch=name, rules=rules)
        self._connection.unary("Heard", request, messages.HeardAnswer, _HEARD_SECONDS)

    def interrupt(self) -> None:
        """End the stream, which is opened again: a fork must not come while it is read."""
        if (stream := self._stream) is not None:
            self._stream = None
            stream.cancel()

    def after_fork_in_child(self) -> None:
        self._news = threading.Condition(threading.RLock())
        self._seen = threading.local()
        self._inherited, self._stream = self._stream, None  # taken apart by the parent alone
        self._heard_at = 0.0
        self._pid = 0

    def close(self) -> None:
        self._closed = True
        if (stream := self._stream) is not None:
            stream.cancel()
        self.wake()


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for watch in list(_watches):
        watch.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
