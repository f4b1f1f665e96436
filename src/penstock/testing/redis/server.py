"""A Redis server of one's own: a fresh folder, a socket, gone when its owner is.

What this class does to its server is what happens to servers: it is stopped, killed, frozen and
started. It listens on a socket in its folder, and on a port where one is asked for.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.errors import PenstockError, Refused, WrongUrl
from penstock.testing.redis import watch
from penstock.testing.redis.programs import Kind, find_program

Setting = str | int | Sequence[str]
# The safe ones; a test that needs no data after a crash says `appendonly: no`.
DURABLE: Mapping[str, Setting] = {"appendonly": "yes", "appendfsync": "always", "save": ""}
_PORTS = range(20_000, 32_000)  # below those that outgoing connections take
_PATIENCE = 60.0


class RedisServer:
    """A running server, as safe as by default; ends with `close()` or with its owner.

    `settings` are those of redis.conf, and are read again at every `start()`.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        kind: Kind | None = None,
        port: bool = False,
        sentinel: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.program = find_program(kind)
        self.settings: dict[str, Setting] = {**({} if sentinel else DURABLE), **(settings or {})}
        self._options = ["--sentinel"] if sentinel else []
        self.environment = dict(environment or {})
        self.port = _free_port() if port else 0
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        # The path of a unix socket has at most about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-redis-")).absolute()
        self.socket = self.folder / "socket"
        self._watcher = _start_watcher(self.folder)
        atexit.register(self.close)
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        if self._process is None:
            raise Refused("the server is not running: start() it first")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the server has written so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def url(self, db: int = 0, **options: str) -> str:
        """A URL of it, by its port if it has one."""
        if self.port:
            address, query = f"redis://127.0.0.1:{self.port}/{db}", options
        else:
            address, query = f"redis+unix://{self.socket}", {"db": str(db), **options}
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return address + (f"?{text}" if text else "")

    def command(self, *words: str | bytes | float) -> Any:
        """What the server answers to a command."""
        server = ServerCalls(parse_address(self.url()))
        try:
            return server.call(*words)
        finally:
            server.close()

    def start(self) -> None:
        """Start it on the data that it has; returns when it answers."""
        if self.running:
            return
        with suppress(FileNotFoundError):
            self.socket.unlink()
        lines = {
            "dir": str(self.folder),
            "port": self.port,
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket),
            "pidfile": str(self.folder / "pid"),
            "logfile": str(self.folder / "log"),
            "daemonize": "no",
            **self.settings,
        }
        path = self.folder / "conf"
        path.write_text("".join(_lines(lines)), encoding="utf-8")
        self._process = subprocess.Popen(
            [str(self.program), str(path), *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C", **self.environment},
            # Control-C in a terminal is for the owner, who then closes the server.
            start_new_session=True,
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start; its log ends:\n{self.log[-4000:]}")
            time.sleep(0.005)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it (-9)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it stands: connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze()`."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove everything that it had; does nothing the second time."""
        # A forked child has this object too, and its end is not the server's.
        if os.getpid() != self._owner or self._watcher.returncode is not None:
            return
        atexit.unregister(self.close)
        self.kill()
        self._watcher.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"PONG"
        except WrongUrl:
            return True  # that it wants another password is an answer
        except PenstockError:
            return False


def _lines(settings: Mapping[str, Setting]) -> list[str]:
    """redis.conf: a setting that is a list has a line for each."""
    rows: list[str] = []
    for name, value in settings.items():
        values = [value] if isinstance(value, str | int) else value
        rows += [f"{name} {each if each != '' else chr(34) * 2}\n" for each in values]
    return rows


def _start_watcher(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watch.__file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        # Whoever kills the owner with its whole group does not reach the watcher.
        start_new_session=True,
    )


def _free_port() -> int:
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Refused(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free on 127.0.0.1")
