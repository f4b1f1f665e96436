"""One connection to a Redis server: commands out, replies in, and a deadline for each exchange.

A call that is cut short, by the deadline or by an exception thrown into the thread, closes the
connection: a late reply would be read as that of the next call.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

import hiredis

from penstock.broker.call_deadline import call_deadline
from penstock.brokers.redis.address import StoreAddress
from penstock.brokers.redis.errors import error_of

CALL_SECONDS = 30.0
CONNECT_SECONDS = 5.0
Word = bytes | str | int | float
Command = Sequence[Word]
_LOOK_SECONDS = 1.0  # how often a call that waits looks whether its process is to stop
_FRESH_SECONDS = 0.05  # an idle connection that was used so lately is not probed
_AT_ONCE = 1 << 18
_packed: Callable[[tuple[Word, ...]], bytes] = hiredis.pack_command  # pyright: ignore[reportAssignmentType, reportUnknownMemberType, reportUnknownVariableType]  its stub says a tuple of one


class Unsent(OSError):
    """The connection was lost before anything of the call was on its way."""


class Wire:
    """A socket and the replies that came over it."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = os.getpid()
        self.used_at = time.monotonic()
        self._socket = connection
        self._reader = hiredis.Reader()
        connection.settimeout(0)  # poll waits
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, commands: Sequence[Command], until: float) -> None:
        """Send commands in one packet; OSError if the connection is lost or does not take them."""
        packet = memoryview(b"".join([_packed(tuple(words)) for words in commands]))
        size = len(packet)
        while packet:
            try:
                packet = packet[self._socket.send(packet) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, until)
            except OSError as error:
                raise (Unsent(str(error)) if len(packet) == size else error) from error

    def reply(self, until: float) -> Any:
        """The next reply, an error as a `hiredis.ReplyError` value; OSError if there comes none."""
        while (reply := self._reader.gets()) is False:
            try:
                data = self._socket.recv(_AT_ONCE)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN, until)
                continue
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(data)
        return reply

    def is_usable(self) -> bool:
        """Whether an idle connection is still open, as far as can be told without a round trip."""
        if time.monotonic() - self.used_at < _FRESH_SECONDS:
            return True
        return not self._poll.poll(0)  # input without a question: the server closed it

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def _wait(self, what: int, until: float) -> None:
        if what == select.POLLIN:
            poll = self._poll
        else:
            poll = select.poll()
            poll.register(self._socket, what)
        while not poll.poll(min(left := seconds_left(until), _LOOK_SECONDS) * 1000):
            if not left:
                raise TimeoutError("no answer in time")


def seconds_left(until: float) -> float:
    return max(0.0, min(until, call_deadline()) - time.monotonic())


def connect(address: StoreAddress, host: tuple[str, int] | None, *, sentinel: bool = False) -> Wire:
    """A new connection, logged in; to this host, or to the socket of the address."""
    until = time.monotonic() + CONNECT_SECONDS
    seconds = max(0.001, seconds_left(until))
    if host is None:
        raw = socket.socket(socket.AF_UNIX)
        raw.settimeout(seconds)
        _or_close(raw, lambda: raw.connect(address.path))
    else:
        raw = socket.create_connection(host, seconds)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if address.tls:
            context, plain = _tls(address), raw
            raw = _or_close(plain, lambda: context.wrap_socket(plain, server_hostname=host[0]))
    wire = Wire(raw)
    _or_close(raw, lambda: _log_in(wire, address, until, sentinel=sentinel))
    return wire


def _or_close(connection: socket.socket, step: Any) -> Any:
    try:
        return step()
    except BaseException:
        connection.close()
        raise


def _tls(address: StoreAddress) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=address.ca_file)
    if address.cert_file:
        context.load_cert_chain(address.cert_file, address.key_file)
    return context


def _log_in(wire: Wire, address: StoreAddress, until: float, *, sentinel: bool) -> None:
    commands: list[Command] = []
    user = address.sentinel_user if sentinel else address.user
    password = address.sentinel_password if sentinel else address.password
    if password is not None:
        commands.append(("AUTH", password) if user is None else ("AUTH", user, password))
    if address.db and not sentinel:
        commands.append(("SELECT", address.db))
    if not commands:
        return
    wire.send(commands, until)
    replies = [wire.reply(until) for _ in commands]
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            raise error_of(str(reply), address.where)
