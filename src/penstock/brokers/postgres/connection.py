"""One connection to PostgreSQL, on which no call waits for ever.

A socket that is half open, a server that is stopped, a lock that is never let go: each call has a
deadline on this side. Whatever cuts a call short, the deadline or an exception thrown into the
thread, closes the connection: its answer may be on the way, and belongs to nobody.
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

from penstock.brokers.postgres.binary_arrays import adapters

R = TypeVar("R")

CALL_SECONDS = 30.0
_MOMENT_SECONDS = 0.05
_POLL = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}


class Overdue(psycopg.OperationalError):
    """The server did not answer in time."""


class Connection(psycopg.Connection[Any]):
    """As psycopg's, with `patience`: the most that one call may take, in seconds."""

    patience: float = CALL_SECONDS
    pid: int = 0
    prepares: bool = True
    prepared: set[bytes]  # the calls that this session knows
    rings: bool = False  # a notification was sent, and its answer is still to be read
    used_at: float = 0.0  # monotonic: when it was last given back

    def wait(self, gen: PQGen[R], interval: float = 0.0, timeout: float | None = None) -> R:
        """Run one exchange with the server, until the deadline."""
        del interval
        patience = self.patience if timeout is None else timeout
        until = time.monotonic() + patience
        poll = select.poll()
        number = self.pgconn.socket
        try:
            state = next(gen)
            while True:
                poll.register(number, _POLL[state])
                left = until - time.monotonic()
                ready = poll.poll(max(0.0, left) * 1000)
                if not ready and left <= 0:
                    raise Overdue(f"no answer within {patience:.0f} s")
                mask = ready[0][1] if ready else 0
                # Trouble shows as readable: libpq then says what it is.
                answer = (1 if mask & ~select.POLLOUT else 0) | (2 if mask & select.POLLOUT else 0)
                state = gen.send(answer & state or state if ready else 0)
        except StopIteration as done:
            return done.value
        except Overdue:
            self.pgconn.finish()
            raise
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()
            raise

    def is_quiet(self) -> bool:
        """Whether an idle connection is still there, as far as can be told without asking.

        The answer of a notification that nobody waited for is read on the way. One that answered
        a moment ago is taken at its word: a look at it would give up the interpreter, and whoever
        takes it keeps it for milliseconds.
        """
        if not self.rings and time.monotonic() - self.used_at < _MOMENT_SECONDS:
            return True
        try:
            if self.rings:
                self.rings = False
                self.wait(_answers(self.pgconn))
            poll = select.poll()
            poll.register(self.pgconn.socket, select.POLLIN)
            return not poll.poll(0)  # a server that was not asked speaks to say farewell
        except psycopg.OperationalError:
            return False

    def ring(self, statement: bytes) -> None:
        """Send a statement whose answer nobody waits for: it is read before the next one."""
        if self.pgconn.status != pq.ConnStatus.OK or self.rings:
            return
        self.pgconn.send_query(statement)
        self.rings = True
        self.pgconn.flush()

    def __del__(self, *_: Any) -> None:
        # A store that is let go of without being closed is in its right, and is not to be warned.
        # After a fork it is the parent's, and must not be ended from here.
        if self.pid == os.getpid():
            with contextlib.suppress(Exception):
                self.pgconn.finish()

    def disown(self) -> None:
        """After a fork, in the child: the socket is the parent's, and must hear nothing from here.

        Closing it would end the parent's session, and so would the collector.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(nothing, self.pgconn.socket)
        finally:
            os.close(nothing)


def _answers(connection: Any) -> PQGen[None]:
    while True:
        connection.consume_input()
        while not connection.is_busy():
            if connection.get_result() is None:
                return
        yield waiting.Wait.R


ADAPTERS = adapters()


def connect(conninfo: str, *, prepare: bool) -> Connection:
    """A new connection in autocommit: transactions begin and end in plain sight."""
    connection = Connection.connect(
        conninfo,
        autocommit=True,
        prepare_threshold=None,  # it would forget our own prepared calls at every rollback
        context=_Context(),
    )
    connection.pid = os.getpid()
    connection.prepares = prepare
    connection.prepared = set()
    return connection


class _Context:
    """What psycopg asks for how values travel."""

    adapters = ADAPTERS
    connection = None
