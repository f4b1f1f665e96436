"""The line between the driver and its slots: words one way, counts and log lines the other.

Executors cannot be signalled, and what a task returns comes when it ends. So each slot calls the
driver and stays on the line: the driver says `drain` or `now`, and its silence for good (the end of
the line) means drain as well. One JSON text a line; the first has to know the token, which only
travels with the code of the tasks. A slot that cannot call works on without.
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

_CALL_SECONDS = 10.0
_LONGEST = 64 * 1024
_MOST_ON_LINE = 100_000

log = logging.getLogger("penstock.spark")


class Address(msgspec.Struct, frozen=True):
    """Where the driver listens, and what a caller has to know."""

    host: str
    port: int
    token: str


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a slot says."""

    slot: int
    token: str = ""  # with the first one
    host: str = ""
    settled: int = 0
    running: int = 0
    log: str = ""


class Switchboard:
    """The driver's end: answers slots and hands on what they say to `heard`."""

    def __init__(self, host: str, bind: str, heard: Callable[[Report], None]) -> None:
        self._heard = heard
        self._word = ""
        self._lock = threading.Lock()
        self._lines: dict[socket.socket, int] = {}
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, 0), family=family, backlog=128)
        port: int = self._listener.getsockname()[1]
        self.address = Address(host, port, secrets.token_hex(16))
        threading.Thread(target=self._answer, name="penstock-switchboard", daemon=True).start()

    @property
    def on_line(self) -> list[int]:
        """The slots that are there now."""
        with self._lock:
            return sorted(self._lines.values())

    def tell(self, word: str) -> None:
        """Say drain or now to every slot, those that call later too."""
        with self._lock:
            self._word = word
            lines = list(self._lines)
        for line in lines:
            _say(line, word)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake who waits
        self._listener.close()
        with self._lock:
            lines, self._lines = list(self._lines), {}
        for line in lines:
            line.close()

    def _answer(self) -> None:
        with suppress(OSError):  # closed
            while True:
                line, _ = self._listener.accept()
                threading.Thread(target=self._listen, args=(line,), daemon=True).start()

    def _listen(self, line: socket.socket) -> None:
        with suppress(OSError, ValueError, msgspec.MsgspecError), line, line.makefile("rb") as said:
            line.settimeout(_CALL_SECONDS)
            first = _next(said)
            if first is None or not hmac.compare_digest(first.token, self.address.token):
                return
            line.settimeout(None)
            with self._lock:
                if len(self._lines) >= _MOST_ON_LINE:
                    return
                self._lines[line] = first.slot
                word = self._word
            try:
                if word:
                    _say(line, word)
                self._heard(first)
                while (report := _next(said)) is not None:
                    self._heard(report)
            finally:
                with self._lock:
                    self._lines.pop(line, None)


class SlotChannel:
    """A slot's end. `told` hears the driver's words; what cannot be said is left unsaid."""

    def __init__(self, address: Address, slot: int, told: Callable[[str], None]) -> None:
        self._slot = slot
        self._told = told
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        place = (address.host, address.port)
        try:
            self._socket = socket.create_connection(place, timeout=_CALL_SECONDS)
        except OSError as error:
            log.warning("slot %d cannot call the driver at %s:%d: %s", slot, *place, error)
            return
        self._socket.settimeout(None)
        self.report(token=address.token, host=socket.gethostname())
        threading.Thread(target=self._hear, name="penstock-slot-line", daemon=True).start()

    def report(
        self, *, token: str = "", host: str = "", settled: int = 0, running: int = 0, log: str = ""
    ) -> None:
        report = Report(self._slot, token, host, settled, running, log[:2000])
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.sendall(msgspec.json.encode(report) + b"\n")

    def close(self) -> None:
        with self._lock:
            line, self._socket = self._socket, None
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _hear(self) -> None:
        line = self._socket
        if line is None:
            return
        with suppress(OSError, ValueError), line.makefile("r", encoding="utf-8") as words:
            for word in words:
                self._told(word.strip())
        if self._socket is not None:
            self._told("drain")  # the driver is gone


def _say(line: socket.socket, word: str) -> None:
    with suppress(OSError):
        line.sendall(f"{word}\n".encode())


def _next(said: IO[bytes]) -> Report | None:
    text = said.readline(_LONGEST)
    return msgspec.json.decode(text, type=Report) if text.endswith(b"\n") else None
