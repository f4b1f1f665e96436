"""Waking up: a notification says that something was committed; polling is the truth.

One thread per process listens, on a connection of its own, and hands on what it hears to those who
wait. It finds out at the beginning whether it hears at all: behind a pooler that hands sessions
around it does not. While nothing can be heard, whoever waits looks for itself more often, and the
rules count as changed all the time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.statements import sql
from penstock.job import Lane

if TYPE_CHECKING:
    from penstock.brokers.postgres.store import PostgresStore

POLL_SECONDS = 2.0  # how long nobody need look for work while it can be heard of
DEAF_SECONDS = 0.5  # and while it cannot
_RULES_SECONDS = 0.004  # less than those who set a rule wait for hands that did not see it
_ECHO_SECONDS = 0.1
_HEARD_SECONDS = 1.0  # the longest that a pause waits for a worker to say that it heard
_NAMES_AT_ONCE = 50  # a notification holds 8000 bytes
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_LOOK_SECONDS = 30.0  # a connection that says nothing is asked whether it is still there
_CLOSE_SECONDS = 6.0
_MOST_NEWS = 100  # kept for a thread that waited once, and may never do so again

log = logging.getLogger("penstock.store")

News = frozenset[int] | None  # lanes; None: anything


class Listener:
    """Hears what is committed elsewhere."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.hears = False
        self.heard = 0  # changes of the rules
        self._waiting: dict[int, queue.SimpleQueue[News]] = {}
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._stopped = False
        self._wake, self._stop = -1, -1  # a pipe, open while the thread runs, which closes it
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._echo = ""
        self._began = threading.Event()
        self._rang = False
        self.on_lanes: Callable[[News], None] = lambda _: None  # lanes that others announced
        self.workers: Collection[str] = ()  # of this process: who is told of a rule, and says so
        self._owes = False
        _listeners.add(self)

    @property
    def poll_seconds(self) -> float:
        """How long nobody need look for work."""
        return POLL_SECONDS if self.hears else DEAF_SECONDS

    @property
    def rules(self) -> int:
        """A number that changes with the rules; one that does not last while it cannot hear."""
        if self.hears:
            return self.heard
        return -int(time.monotonic() / _RULES_SECONDS)

    def rules_version(self) -> int:
        """As `rules`, and begins to listen; asked before every job."""
        if self.hears:
            return self.heard
        self.listen()
        return self.rules

    def listen(self) -> None:
        """Begin, if that has not been done in this process."""
        if self._pid == os.getpid() or self._store.pooled or self._stopped:
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            self.hears = False
            self._began = threading.Event()
            self._wake, self._stop = os.pipe()
            self._thread = threading.Thread(target=self._run, name="penstock-listen", daemon=True)
            self._thread.start()
        self._began.wait(timeout=_LONGEST_PAUSE)  # what is announced from now on is heard

    def wait(
        self,
        queues: Collection[str] | None,
        timeout: float,
        due_in: float | None,
        lane_of: Callable[[int], Lane | None],
    ) -> tuple[bool, frozenset[int]]:
        """Until there may be something in these queues: whether, and in which lanes if known."""
        self.listen()
        me = threading.get_ident()
        box = self._waiting.get(me)
        if box is None:
            box = self._waiting[me] = queue.SimpleQueue()
            if self._rang:
                box.put(None)
        longest = timeout
        if due_in is not None:
            longest = min(longest, max(0.0, due_in))
        looks = longest < timeout  # then somebody has to: the time is not up
        until = time.monotonic() + longest
        while True:
            try:
                news = box.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return looks, frozenset()
            if news is None or queues is None or any(_in(queues, lane_of(n)) for n in news):
                lanes = set(news or ())
                with contextlib.suppress(queue.Empty):
                    while True:
                        lanes.update(box.get_nowait() or ())  # one look is enough for all of them
                return True, frozenset(lanes)

    @contextmanager
    def heard_rules(self) -> Generator[None]:
        """Return once this process heard of the change itself, and so others may have, too."""
        before = self.rules
        yield
        until = time.monotonic() + _ECHO_SECONDS
        while self.hears and self.rules == before and time.monotonic() < until:
            time.sleep(0.000_2)

    def ring(self) -> None:
        """End every wait of this process, or the next one; safe in a signal handler."""
        self._rang = True
        for box in list(self._waiting.values()):
            _put(box, None)

    def _run(self) -> None:
        try:
            self._listen()
        finally:
            with self._lock:
                self._close_pipe()

    def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped:
            try:
                with self._store.connect() as self._connection:
                    self._listen_on(self._connection)
                pause = _FIRST_PAUSE
            except Exception as error:
                if not self._stopped:
                    log.debug("listening is tried again: %s", error)
            if self.hears:
                pause = _FIRST_PAUSE
            self.hears = False
            self._missed()
            self._began.set()
            if not self._stopped:
                self._rest(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _rest(self, seconds: float) -> None:
        if _readable(seconds, self._wake):
            os.read(self._wake, 100)

    def doubt(self) -> None:
        """Another connection was cut off: see whether this one is still there."""
        if self.hears and self._pid == os.getpid():
            self._say(b"?")

    def _say(self, what: bytes) -> None:
        with self._lock:
            if self._stop >= 0:
                os.write(self._stop, what)

    def _close_pipe(self) -> None:
        for number in (self._stop, self._wake):
            if number >= 0:
                os.close(number)
        self._wake, self._stop = -1, -1

    def _missed(self) -> None:
        """Something may have been announced meanwhile, about jobs or about rules."""
        self.heard += 1
        self.ring()

    def _listen_on(self, connection: Connection) -> None:
        connection.patience = 5.0
        # Those that come with the answer of a statement; the others are read below.
        connection.add_notify_handler(lambda notice: self._hear(notice.payload))
        connection.execute(sql.listen.encode())
        self._echo = f"echo {uuid.uuid4()}"
        connection.execute(sql.tell.encode(), (self._echo,))
        self._heard(connection)
        if self._began.is_set():
            self._missed()  # while there was no connection
        self._began.set()
        while not self._stopped:
            ready = _readable(_LOOK_SECONDS, connection.pgconn.socket, self._wake)
            if connection.pgconn.socket in ready:
                connection.pgconn.consume_input()
            else:
                self._rest(0)
                connection.execute(sql.still_there.encode())
            self._heard(connection)
            if self._owes:
                self._owes = False
                self._say_so(connection)

    def _heard(self, connection: Connection) -> None:
        while (notice := connection.pgconn.notifies()) is not None:
            self._hear(notice.extra.decode("utf-8", "replace"))

    def _hear(self, payload: str) -> None:
        if payload == self._echo:
            self.hears = True
        elif payload == "rules":
            self._missed()
            self._owes = True
        elif not payload.startswith("echo"):
            self._tell(payload)

    def _say_so(self, connection: Connection) -> None:
        """Whoever set the rule waits for this: from now on nothing starts here that it covers."""
        names = list(self.workers)
        for first in range(0, len(names), _NAMES_AT_ONCE):
            payload = ",".join(names[first : first + _NAMES_AT_ONCE])
            connection.execute(sql.tell_heard.encode(), (payload,))

    def _tell(self, payload: str) -> None:
        try:
            news: News = frozenset(map(_lane_number, payload.split(","))) if payload else None
        except ValueError:
            news = None
        self.on_lanes(news)
        for box in list(self._waiting.values()):
            _put(box, news)

    def after_fork_in_child(self) -> None:
        """The thread and its connection are the parent's; whoever waits here listens anew."""
        self._lock = threading.Lock()
        self._pid = 0
        self._thread = None
        self._close_pipe()
        if self._connection is not None and not self._connection.closed:
            self._connection.disown()
        self._connection = None
        self.hears = False
        self._waiting = {}

    def close(self) -> None:
        self._stopped = True
        self.hears = False
        thread, self._thread = self._thread, None
        if self._pid == os.getpid() and thread is not None:
            self._say(b"!")
            thread.join(timeout=_CLOSE_SECONDS)
        self._waiting.clear()


def await_heard(connection: Connection, waiting: set[str], heard: list[str]) -> None:
    """Wait a while until all of these workers have answered; `waiting` keeps the others."""
    until = time.monotonic() + _HEARD_SECONDS
    while True:
        while (notice := connection.pgconn.notifies()) is not None:
            heard.append(notice.extra.decode("utf-8", "replace"))
        for payload in heard:
            waiting.difference_update(payload.split(","))
        heard.clear()
        left = until - time.monotonic()
        if not waiting or left <= 0:
            return
        if _readable(left, connection.pgconn.socket):
            connection.pgconn.consume_input()


def _lane_number(word: str) -> int:
    """Anybody may notify: what is no lane's number is no number."""
    number = int(word)
    if not -(2**63) <= number < 2**63:
        raise ValueError(word)
    return number


def _readable(seconds: float, *numbers: int) -> set[int]:
    """Which of these descriptors have something to say; not by select, which knows 1024."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return {number for number, _ in poll.poll(seconds * 1000)}


def _put(box: queue.SimpleQueue[News], news: News) -> None:
    if box.qsize() >= _MOST_NEWS:
        with contextlib.suppress(queue.Empty):
            while True:
                box.get_nowait()
        news = None
    box.put(news)


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for listener in list(_listeners):
        listener.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _in(queues: Collection[str], lane: Lane | None) -> bool:
    return lane is None or lane.queue in queues
