"""A transaction pooler, as small as it can be: few sessions of a server for many clients.

A client has a session from its first word until the transaction has ended (ReadyForQuery says
idle), and another one the next time. Nothing is cleaned up in between, as with the poolers that
people run: what somebody prepares or sets there, the next one finds.
"""

from __future__ import annotations

import queue
import re
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit

# What a proxy that watches its clients keeps a session for, until they leave.
_PINS = re.compile(
    rb"(?:--[^\n]*\n|\s)*(?:listen\b|prepare\b|set\s+(?!local\b|transaction\b|constraints\b)"
    rb"|create\s+temp|declare\b[^;]*with\s+hold)"
    rb"|.*\bpg_(?:try_)?advisory_lock",
    re.IGNORECASE | re.DOTALL,
)
_NO_ENCRYPTION = {80877103, 80877104}  # requests for TLS and GSSAPI
_CANCEL = 80877102


class _Messages:
    """Cuts a stream into messages: a type, a length, and so much more."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._buffer += data
        while len(self._buffer) >= 5:
            size = 1 + struct.unpack_from("!I", self._buffer, 1)[0]
            if len(self._buffer) < size:
                return
            message = bytes(self._buffer[:size])
            del self._buffer[:size]
            yield message[:1], message


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


class _Session:
    """A session of the server, lent to one client at a time."""

    def __init__(self, target: tuple[str, int], startup: bytes) -> None:
        self.line = socket.create_connection(target)
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.line.sendall(startup)
        self.messages = _Messages()
        self.greeting = b""  # what a client expects to hear first
        while True:
            for kind, message in self.messages.feed(self.line.recv(1 << 16)):
                self.greeting += message
                if kind == b"Z":
                    return


class Pooler:
    """`sessions` of the server for everybody; `url` is what clients are told."""

    def __init__(self, url: str, sessions: int = 3) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        words = ["user", parts.username or "postgres", "database", parts.path[1:], "", ""]
        text = "\0".join(words).encode()[:-1] + b"\0"
        self._startup = struct.pack("!II", 8 + len(text), 196608) + text
        self._idle: queue.SimpleQueue[_Session] = queue.SimpleQueue()
        self._sessions = sessions
        for _ in range(sessions):
            self._idle.put(_Session(self._target, self._startup))
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))
        self.lent = 0
        self.pins: set[str] = set()  # words of clients that pin a session to them
        self.clients = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.clients += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError):
            if self._greet(client):
                said = _Messages()
                while data := client.recv(1 << 16):
                    if not self._transaction(client, said, data):
                        return

    def _greet(self, client: socket.socket) -> bool:
        while True:
            size, code = struct.unpack("!II", _exactly(client, 8))
            _exactly(client, size - 8)
            if code in _NO_ENCRYPTION:
                client.sendall(b"N")
                continue
            if code == _CANCEL:
                return False
            session = self._idle.get()
            self._idle.put(session)
            client.sendall(session.greeting)
            return True

    def _transaction(self, client: socket.socket, said: _Messages, data: bytes) -> bool:
        """One transaction of this client on some session; False when the client has left."""
        session = self._idle.get()  # in turn: hardly ever the one it had before
        self.lent += 1
        whole = False
        try:
            expected = self._pass_on(session, said, data)
            if expected is None:
                whole = True
                return False
            with selectors.DefaultSelector() as ends:
                ends.register(client, selectors.EVENT_READ)
                ends.register(session.line, selectors.EVENT_READ)
                while True:
                    for key, _ in ends.select():
                        if key.fileobj is client:
                            more = client.recv(1 << 16)
                            sent = self._pass_on(session, said, more) if more else None
                            if sent is None:
                                return False
                            expected += sent
                            continue
                        for kind, message in session.messages.feed(session.line.recv(1 << 16)):
                            client.sendall(message)
                            if kind == b"Z":
                                expected -= 1
                                whole = expected == 0 and message[-1:] == b"I"
                    if whole:
                        return True
        finally:
            if whole:
                self._idle.put(session)
            else:
                # Left in mid-transaction: the session goes, and with it the transaction.
                session.line.close()
                self._idle.put(_Session(self._target, self._startup))

    def _pass_on(self, session: _Session, said: _Messages, data: bytes) -> int | None:
        """Hand on what the client says; how many answers that asks for, None if it leaves."""
        expected = 0
        for kind, message in said.feed(data):
            if kind == b"X":
                return None
            self._note_pin(kind, message)
            session.line.sendall(message)
            expected += kind in (b"S", b"Q")
        return expected

    def _note_pin(self, kind: bytes, message: bytes) -> None:
        if kind not in (b"P", b"Q"):
            return
        name, _, words = message[5:].partition(b"\0") if kind == b"P" else (b"", b"", message[5:])
        if name or _PINS.match(words):
            self.pins.add(words.partition(b"\0")[0].decode(errors="replace").strip()[:100])

    def close(self) -> None:
        self._listener.close()
        with suppress(queue.Empty):  # one that a client still has goes with it
            for _ in range(self._sessions):
                self._idle.get(timeout=1).line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
