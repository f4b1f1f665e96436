"""One connection to PostgreSQL, on which every call has a deadline.

The deadline is on this side: it also ends a call on a half-open socket, to a stopped server, or
behind a lock that is never released. A call that is cut short, by the deadline or by an exception
thrown into the thread, closes the connection: a late answer would be read as that of the next call.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import Any, TypeVar

import psycopg
from psycopg import pq, waiting
from psycopg.abc import PQGen

from penstock.broker.call_deadline import call_deadline
from penstock.brokers.postgres.binary_arrays import psycopg_adapters
from penstock.brokers.postgres.refused_login import check_login

R = TypeVar("R")

CALL_SECONDS = 30.0
_LOOK_SECONDS = 1.0  # how often a call that waits looks whether its process is to stop
_FRESH_SECONDS = 0.05  # an idle connection that was used so lately is not probed
_POLL = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}


class CallTimeout(psycopg.OperationalError):
    """The server did not answer within the connection's `call_seconds`."""


class Connection(psycopg.Connection[Any]):
    """psycopg's, with `call_seconds`: the most that one call may take."""

    call_seconds: float = CALL_SECONDS
    pid: int = 0  # the process that opened it
    prepares: bool = True
    prepared: set[bytes]  # names of the calls that this session has prepared
    answer_unread: bool = False  # of `send_unawaited`
    used_at: float = 0.0  # monotonic: when it was last returned to the store

    def wait(self, gen: PQGen[R], interval: float = 0.0, timeout: float | None = None) -> R:
        """What psycopg calls for every exchange with the server: run it, until the deadline."""
        del interval
        seconds = self.call_seconds if timeout is None else timeout
        until = time.monotonic() + seconds
        poll = select.poll()
        number = self.pgconn.socket
        try:
            state = next(gen)
            while True:
                poll.register(number, _POLL[state])
                left = _seconds_left(until)
                ready = poll.poll(min(left, _LOOK_SECONDS) * 1000)
                if not ready and not left:
                    raise CallTimeout(f"no answer within {seconds:.0f} s")
                mask = ready[0][1] if ready else 0
                # An error on the socket counts as readable: libpq then reports it.
                answer = (1 if mask & ~select.POLLOUT else 0) | (2 if mask & select.POLLOUT else 0)
                state = gen.send(answer & state or state if ready else 0)
        except StopIteration as done:
            return done.value
        except CallTimeout:
            self.pgconn.finish()
            raise
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()
            raise

    def wait_for_input(self, poll: select.poll, until: float) -> None:
        """Wait until the server sent something and read it; CallTimeout after `until`."""
        while not poll.poll(min(left := _seconds_left(until), _LOOK_SECONDS) * 1000):
            if not left:
                self.pgconn.finish()
                raise CallTimeout(f"no answer within {self.call_seconds:.0f} s")
        self.pgconn.consume_input()

    def is_usable(self) -> bool:
        """Whether an idle connection is still open, as far as can be told without a round trip.

        Reads the answer of `send_unawaited`, if one is pending. A connection that was in use a
        moment ago is not probed: a poll would release the interpreter lock, and whoever takes it
        keeps it for milliseconds.
        """
        if not self.answer_unread and time.monotonic() - self.used_at < _FRESH_SECONDS:
            return True
        try:
            if self.answer_unread:
                self.answer_unread = False
                self.wait(_discard_answer(self.pgconn))
            poll = select.poll()
            poll.register(self.pgconn.socket, select.POLLIN)
            return not poll.poll(0)  # input without a question: the server closed the connection
        except psycopg.OperationalError:
            return False

    def send_unawaited(self, statement: bytes) -> None:
        """Send a statement without waiting; its answer is read before the connection's next use."""
        if self.pgconn.status != pq.ConnStatus.OK or self.answer_unread:
            return
        self.pgconn.send_query(statement)
        self.answer_unread = True
        self.pgconn.flush()

    def __del__(self, *_: Any) -> None:
        # Without psycopg's warning about unclosed connections: a store need not be closed.
        # After a fork the session is the parent's, and must not be ended from here.
        if self.pid == os.getpid():
            with contextlib.suppress(Exception):
                self.pgconn.finish()

    def disown(self) -> None:
        """In a forked child: point the socket at /dev/null, since the session is the parent's.

        To close the connection, or to have it garbage-collected, would end the parent's session.
        """
        devnull = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(devnull, self.pgconn.socket)
        finally:
            os.close(devnull)


def _seconds_left(until: float) -> float:
    return max(0.0, min(until, call_deadline()) - time.monotonic())


def _discard_answer(wire: Any) -> PQGen[None]:
    while True:
        wire.consume_input()
        while not wire.is_busy():
            if wire.get_result() is None:
                return
        yield waiting.Wait.R


def connect(conninfo: str, *, prepare: bool) -> Connection:
    """A new connection in autocommit mode: we send `begin` and `commit` ourselves."""
    try:
        connection = Connection.connect(
            conninfo,
            autocommit=True,
            prepare_threshold=None,  # psycopg would drop our own prepared calls at every rollback
            context=_Context(),
        )
    except psycopg.OperationalError as error:
        check_login(error, conninfo)
        raise
    connection.pid = os.getpid()
    connection.prepares = prepare
    connection.prepared = set()
    return connection


class _Context:
    """psycopg's AdaptContext: how values are converted."""

    adapters = psycopg_adapters()
    connection = None
