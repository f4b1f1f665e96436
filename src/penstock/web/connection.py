"""Connections to the dashboard's server, and how many there may be.

A connection is held by its client only while requests arrive whole and answers are read. Everything
else is cut, so that nobody without a token can keep others out: see `Connections.admit`.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
from typing import TYPE_CHECKING, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.web.guard import person_in

if TYPE_CHECKING:
    from starlette.types import Scope

REQUEST_SECONDS = 15.0  # for a request to arrive whole
READ_SECONDS = 15.0  # for a client to read `READ_BYTES` of its answer
READ_BYTES = 64 * 1024
MOST_CONNECTIONS = 500
_OTHER_FILES = 100  # descriptors that are left for the store, logs and the program itself


def most_connections() -> int:
    """As many as this process may have open, and no more than `MOST_CONNECTIONS`."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, files - _OTHER_FILES))


class Connections:
    """The open connections of one server, in the order in which they last became idle."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[TimedConnection, None] = {}

    def admit(self, connection: TimedConnection) -> None:
        """Make room if there are too many: cut the one that was idle, or unknown, for longest.

        A connection whose request is being answered for somebody with a token is never cut.
        """
        self.touch(connection)
        if len(self._open) > self._most:
            victim = next((other for other in self._open if not other.serves_a_person), None)
            if victim is not None:
                del self._open[victim]
                victim.cut()

    def touch(self, connection: TimedConnection) -> None:
        """Note that this connection was used just now."""
        self._open.pop(connection, None)
        self._open[connection] = None

    def remove(self, connection: TimedConnection) -> None:
        self._open.pop(connection, None)


class TimedConnection(H11Protocol):
    """A connection that is cut if its request does not arrive, or its answer is not read, in time.

    The server makes a subclass with its own `others` and times.
    """

    others: Connections
    request_seconds = REQUEST_SECONDS
    read_seconds = READ_SECONDS
    _arriving: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # `pause_writing` is then called as soon as anything is left unsent, not only at 64 KiB.
        # Not 0: with it TLS pauses although nothing is left.
        transport.set_write_buffer_limits(high=1, low=0)
        self._time_arrival()
        self.others.admit(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_arrival()

    def on_response_complete(self) -> None:
        self.others.touch(self)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.others.remove(self)
        self._arriving = _cancelled(self._arriving)
        self._unread = _cancelled(self._unread)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_reading()

    def resume_writing(self) -> None:
        self._unread = _cancelled(self._unread)
        super().resume_writing()

    @property
    def serves_a_person(self) -> bool:
        """Whether a request of somebody with a token is being answered."""
        if not self.cycle or self.cycle.response_complete:  # None before the first request
            return False
        return person_in(cast("Scope", self.scope)) is not None

    def cut(self) -> None:
        """Close at once. `close` would wait, for ever, until the client has read what is unsent."""
        made = self.transport.get_extra_info("socket")
        if made is not None and self.transport.get_write_buffer_size():
            # A reset: else the system keeps what it has of the answer, for many minutes.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _time_arrival(self) -> None:
        """One timer from the first byte of a request to its last."""
        if self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}:
            self._arriving = _cancelled(self._arriving)
        elif self._arriving is None:
            self._arriving = self.loop.call_later(self.request_seconds, self.cut)

    def _time_reading(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.read_seconds, self._check_reading, unsent)

    def _check_reading(self, before: int) -> None:
        """Cut a client that read less than `READ_BYTES` in this time."""
        if self.transport.get_write_buffer_size() > before - READ_BYTES:
            self.cut()
        else:
            self._time_reading()


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
