"""LISTEN and NOTIFY: what is committed elsewhere wakes up who waits here.

A notification is a hint; polling finds the same work a little later. One thread per process
listens, on a connection of its own, and wakes the threads that wait. At the start it sends itself
a notification, because behind a pooler in transaction mode none arrive. While none do, waiting
threads poll more often, and the rules count as changed all the time.
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

POLL_SECONDS = 2.0  # between two polls for work while notifications arrive
DEAF_SECONDS = 0.5  # and while they do not
_RULES_SECONDS = 0.004  # shorter than a pause waits for workers that get no notifications
_ECHO_SECONDS = 0.1
_ACKNOWLEDGE_SECONDS = 1.0  # the longest that a pause waits for acknowledgements
_NAMES_PER_PAYLOAD = 50  # a notification holds 8000 bytes
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # before the next attempt to connect
_PING_SECONDS = 30.0  # a connection that was silent for so long is probed
_CLOSE_SECONDS = 6.0
_SETTLED = "settled "  # and the id of a job: `functions/settle_sql.sql`
_MOST_NEWS = 100  # kept for one thread, which may never wait again

log = logging.getLogger("penstock.store")

News = frozenset[int] | None  # lanes with new work; None: any lane


class Listener:
    """Receives this process's notifications; `receiving` says whether they arrive."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.receiving = False
        self._rules_changes = 0  # notifications of changed rules so far
        self._waiting: dict[int, queue.SimpleQueue[News]] = {}  # by thread
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._stopped = False
        # A pipe that interrupts the thread's poll; the thread closes it at its end.
        self._pipe_out, self._pipe_in = -1, -1
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._echo = ""  # what this process notifies itself with
        self._began = threading.Event()
        self._had_news = False  # before a thread waits for the first time: it looks at once
        self.on_lanes: Callable[[News], None] = lambda _: None  # called with announced lanes
        self.workers: Collection[str] = ()  # of this process, which acknowledge changed rules
        self._acknowledgement_due = False
        _listeners.add(self)

    @property
    def poll_seconds(self) -> float:
        """How long a worker may wait between two polls for work."""
        return POLL_SECONDS if self.receiving else DEAF_SECONDS

    @property
    def _current_rules(self) -> int:
        if self.receiving:
            return self._rules_changes
        return -int(time.monotonic() / _RULES_SECONDS)

    def rules_version(self) -> int:
        """A number that changes with the rules; all the time while no notifications arrive.

        Asked for before every job starts; the first call starts the listener.
        """
        if self.receiving:
            return self._rules_changes
        self.listen()
        return self._current_rules

    def listen(self) -> None:
        """Start the thread, if this process has none; returns when it listens."""
        if self._pid == os.getpid() or self._store.pooled or self._stopped:
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            self.receiving = False
            self._began = threading.Event()
            self._pipe_out, self._pipe_in = os.pipe()
            self._thread = threading.Thread(target=self._run, name="penstock-listen", daemon=True)
            self._thread.start()
        self._began.wait(timeout=_LONGEST_PAUSE)

    def wait(
        self,
        queues: Collection[str] | None,
        timeout: float,
        lane_of: Callable[[int], Lane | None],
    ) -> tuple[bool, frozenset[int]]:
        """Wait until there may be work in these queues: whether, and in which lanes if known."""
        self.listen()
        me = threading.get_ident()
        box = self._waiting.get(me)
        if box is None:
            box = self._waiting[me] = queue.SimpleQueue()
            if self._had_news:
                box.put(None)
        until = time.monotonic() + timeout
        while True:
            try:
                news = box.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return False, frozenset()
            if news is None or queues is None or any(_in(queues, lane_of(n)) for n in news):
                lanes = set(news or ())
                with contextlib.suppress(queue.Empty):
                    while True:
                        lanes.update(box.get_nowait() or ())  # one claim will look at all of them
                return True, frozenset(lanes)

    @contextmanager
    def own_notification_of_rules(self) -> Generator[None]:
        """At the end, wait until the notification sent inside has come back to this process."""
        before = self._current_rules
        yield
        until = time.monotonic() + _ECHO_SECONDS
        while self.receiving and self._current_rules == before and time.monotonic() < until:
            time.sleep(0.000_2)

    def wake(self) -> None:
        """End every wait of this process, or the next one; safe in a signal handler."""
        self._had_news = True
        for box in list(self._waiting.values()):
            _put(box, None)

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        try:
            while not self._stopped:
                try:
                    with self._store.connect() as self._connection:
                        self._listen_on(self._connection)
                    pause = _FIRST_PAUSE
                except Exception as error:
                    if not self._stopped:
                        log.debug("reconnecting the listener: %s", error)
                if self.receiving:
                    pause = _FIRST_PAUSE
                self.receiving = False
                self._assume_changes()
                self._began.set()
                if not self._stopped:
                    self._drain_pipe(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
        finally:
            with self._lock:
                self._close_pipe()

    def _drain_pipe(self, seconds: float) -> None:
        if _readable(seconds, self._pipe_out):
            os.read(self._pipe_out, 100)

    def check_connection(self) -> None:
        """Another connection broke: probe this one, too."""
        if self.receiving and self._pid == os.getpid():
            self._interrupt_poll()

    def _interrupt_poll(self) -> None:
        with self._lock:
            if self._pipe_in >= 0:
                os.write(self._pipe_in, b"!")

    def _close_pipe(self) -> None:
        for descriptor in (self._pipe_in, self._pipe_out):
            if descriptor >= 0:
                os.close(descriptor)
        self._pipe_out, self._pipe_in = -1, -1

    def _assume_changes(self) -> None:
        """The rules may have changed, and there may be work: read both."""
        self._rules_changes += 1
        self.wake()

    def _listen_on(self, connection: Connection) -> None:
        connection.call_seconds = 5.0
        # For notifications that come with the answer of a statement; others are read below.
        connection.add_notify_handler(lambda notice: self._handle(notice.payload))
        connection.execute(sql.listen.encode())
        self._echo = f"echo {uuid.uuid4()}"
        connection.execute(sql.notify.encode(), (self._echo,))
        self._handle_all(connection)
        if self._began.is_set():
            self._assume_changes()  # while there was no connection
        self._began.set()
        while not self._stopped:
            ready = _readable(_PING_SECONDS, connection.pgconn.socket, self._pipe_out)
            if connection.pgconn.socket in ready:
                connection.pgconn.consume_input()
            else:
                self._drain_pipe(0)
                connection.execute(sql.ping.encode())
            self._handle_all(connection)
            if self._acknowledgement_due:
                self._acknowledgement_due = False
                self._acknowledge(connection)

    def _handle_all(self, connection: Connection) -> None:
        while (notice := connection.pgconn.notifies()) is not None:
            self._handle(notice.extra.decode("utf-8", "replace"))

    def _handle(self, payload: str) -> None:
        if payload == self._echo:
            self.receiving = True
        elif payload == "rules":
            self._assume_changes()
            self._acknowledgement_due = True
        elif payload.startswith(_SETTLED):
            if (settled := self._store.traits.settled_in_sql) is not None:
                settled(payload.removeprefix(_SETTLED))
        elif not payload.startswith("echo"):
            self._announce(payload)

    def _acknowledge(self, connection: Connection) -> None:
        """Whoever set a rule waits for this: from now on nothing starts here that it covers."""
        names = list(self.workers)
        for first in range(0, len(names), _NAMES_PER_PAYLOAD):
            payload = ",".join(names[first : first + _NAMES_PER_PAYLOAD])
            connection.execute(sql.acknowledge.encode(), (payload,))

    def _announce(self, payload: str) -> None:
        try:
            news: News = frozenset(map(_lane_number, payload.split(","))) if payload else None
        except ValueError:
            news = None
        self.on_lanes(news)
        self._had_news = True
        for box in list(self._waiting.values()):
            _put(box, news)

    def after_fork_in_child(self) -> None:
        """The thread and its connection are the parent's; the next wait here starts another."""
        self._lock = threading.Lock()
        self._pid = 0
        self._thread = None
        self._close_pipe()
        if self._connection is not None and not self._connection.closed:
            self._connection.disown()
        self._connection = None
        self.receiving = False
        self._waiting = {}

    def close(self) -> None:
        self._stopped = True
        self.receiving = False
        thread, self._thread = self._thread, None
        if self._pid == os.getpid() and thread is not None:
            self._interrupt_poll()
            thread.join(timeout=_CLOSE_SECONDS)
        self._waiting.clear()


def wait_for_acknowledgements(
    connection: Connection, waiting: set[str], payloads: list[str]
) -> None:
    """Wait a while until all of these workers have answered; `waiting` keeps the others."""
    until = time.monotonic() + _ACKNOWLEDGE_SECONDS
    while True:
        while (notice := connection.pgconn.notifies()) is not None:
            payloads.append(notice.extra.decode("utf-8", "replace"))
        for payload in payloads:
            waiting.difference_update(payload.split(","))
        payloads.clear()
        left = until - time.monotonic()
        if not waiting or left <= 0:
            return
        if _readable(left, connection.pgconn.socket):
            connection.pgconn.consume_input()


def _lane_number(word: str) -> int:
    """ValueError if it is none: any login of the database may send notifications."""
    number = int(word)
    if not -(2**63) <= number < 2**63:
        raise ValueError(word)
    return number


def _readable(seconds: float, *descriptors: int) -> set[int]:
    """Which of these can be read; by poll, since select knows only descriptors below 1024."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(seconds * 1000)}


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
