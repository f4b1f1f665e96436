"""The TCP channel between the driver and its slots: stop commands one way, reports the other.

Executors cannot be signalled, and what a Spark task returns arrives when it ends. So each slot
connects to the driver, which sends `drain` or `now`; a connection that breaks means drain as well.
One JSON text per line. The first report must carry the token, which only travels with the code of
the Spark tasks. A slot that cannot connect works on without a channel.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

import msgspec

_CONNECT_SECONDS = 10.0
_LONGEST_LINE = 64 * 1024
_MOST_CONNECTIONS = 100_000

log = logging.getLogger("penstock.spark")


class Address(msgspec.Struct, frozen=True):
    """Where the driver listens, and the token that a slot must present."""

    host: str
    port: int
    token: str


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a slot reports: its counts, or a log line."""

    slot: int
    token: str = ""  # in the first report
    host: str = ""
    settled: int = 0
    running: int = 0
    log: str = ""


class ChannelServer:
    """The driver's end: passes the reports of slots to `on_report`, and commands to slots."""

    def __init__(self, host: str, bind: str, on_report: Callable[[Report], None]) -> None:
        self._on_report = on_report
        self._command = ""
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, 0), family=family, backlog=128)
        port: int = self._listener.getsockname()[1]
        self.address = Address(host, port, secrets.token_hex(16))
        threading.Thread(target=self._accept, name="penstock-fleet-channel", daemon=True).start()

    @property
    def connected(self) -> bool:
        """Whether any slot is connected."""
        return bool(self._connections)

    def send(self, command: str) -> None:
        """Send drain or now to every slot, also to those that connect later."""
        with self._lock:
            self._command = command
            connections = list(self._connections)
        for connection in connections:
            _send(connection, command)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close() alone would not wake accept()
        self._listener.close()
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with (
            suppress(OSError, ValueError, msgspec.MsgspecError),
            connection,
            connection.makefile("rb") as lines,
        ):
            connection.settimeout(_CONNECT_SECONDS)
            first = _next_report(lines)
            if first is None or not hmac.compare_digest(first.token, self.address.token):
                return
            connection.settimeout(None)
            with self._lock:
                if len(self._connections) >= _MOST_CONNECTIONS:
                    return
                self._connections.add(connection)
                command = self._command
            try:
                if command:
                    _send(connection, command)
                self._on_report(first)
                while (report := _next_report(lines)) is not None:
                    self._on_report(report)
            finally:
                with self._lock:
                    self._connections.discard(connection)


class SlotChannel:
    """A slot's end: calls `on_command` with the driver's commands; reports may be lost."""

    def __init__(self, address: Address, slot: int, on_command: Callable[[str], None]) -> None:
        self._slot = slot
        self._on_command = on_command
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        target = (address.host, address.port)
        try:
            self._socket = socket.create_connection(target, timeout=_CONNECT_SECONDS)
        except OSError as error:
            log.warning("slot %d cannot connect to the driver at %s:%d: %s", slot, *target, error)
            return
        self._socket.settimeout(None)
        self.report(token=address.token, host=socket.gethostname())
        threading.Thread(target=self._listen, name="penstock-slot-channel", daemon=True).start()

    def report(
        self, *, token: str = "", host: str = "", settled: int = 0, running: int = 0, log: str = ""
    ) -> None:
        report = Report(self._slot, token, host, settled, running, log[:2000])
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.sendall(msgspec.json.encode(report) + b"\n")

    def close(self) -> None:
        with self._lock:
            connection, self._socket = self._socket, None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _listen(self) -> None:
        connection = self._socket
        if connection is None:
            return
        with suppress(OSError, ValueError), connection.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                self._on_command(line.strip())
        if self._socket is not None:
            self._on_command("drain")  # the driver is gone


def _send(connection: socket.socket, command: str) -> None:
    with suppress(OSError):
        connection.sendall(f"{command}\n".encode())


def _next_report(lines: IO[bytes]) -> Report | None:
    line = lines.readline(_LONGEST_LINE)
    return msgspec.json.decode(line, type=Report) if line.endswith(b"\n") else None
