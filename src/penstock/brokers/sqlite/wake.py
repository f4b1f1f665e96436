"""Waking waiting workers: by a datagram after each commit, and by polling as the safety net.

Every thread that waits owns a unix socket in a folder named after the store; each commit sends one
byte to all of them. Lost datagrams, other users and foreign writers are covered by `pragma
data_version`, which changes when another connection has committed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from penstock.app.private_files import is_ours, private_folder
from penstock.errors import Refused

_TRIES = 3
_LOOK_SECONDS = 0.05  # a data_version costs 3 us: 20 of them a second cost nothing


class Waiter:
    """The socket and the pipe that one thread waits on."""

    def __init__(self, folder: Path, data_version: Callable[[], int]) -> None:
        self._data_version = data_version
        self._seen: int | None = None
        self._pipe, self._pipe_end = os.pipe()  # the pipe is for `wake` of this process
        os.set_blocking(self._pipe_end, False)
        os.set_blocking(self._pipe, False)
        self._folder = folder
        self._path: Path | None = None
        self._socket: socket.socket | None = None
        for _ in range(_TRIES):
            if not self.listens:
                self._listen()

    @property
    def listens(self) -> bool:
        """Whether it has a socket; else it only polls."""
        return self._socket is not None

    def _listen(self) -> None:
        folder = self._folder
        path = folder / f"{os.getpid()}-{threading.get_ident():x}-{time.monotonic_ns():x}"
        made = None
        try:
            for needed in (folder.parent, folder):  # others can guess the names of both
                with private_folder(needed, "set TMPDIR"):
                    pass
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            made.bind(str(path))
        except (OSError, Refused):
            # Another thread just removed the empty folder; or it is another user's, or there are no
            # unix sockets here: then polling has to do.
            if made is not None:
                made.close()
            return
        self._socket, self._path = made, path

    def wait(self, timeout: float) -> bool:
        """True when there may be something to claim, also since the last call."""
        until = time.monotonic() + timeout
        sources = [source for source in (self._socket, self._pipe) if source is not None]
        while True:
            version = self._data_version()
            if version != self._seen:
                self._seen = version
                self._drain()
                return True
            left = until - time.monotonic()
            ready = select.select(sources, [], [], max(0.0, min(left, _LOOK_SECONDS)))[0]
            if ready:
                self._drain()
                self._seen = self._data_version()
                return True
            if left <= 0:
                return False

    def wake(self) -> None:
        """End the wait; safe in a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._pipe_end, b"!")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._pipe, 4096):
                pass
        if self._socket:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._socket.recv(16)

    def close(self) -> None:
        if self._socket:
            self._socket.close()
        if self._path:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty: others wait there
                self._folder.rmdir()
        os.close(self._pipe)
        os.close(self._pipe_end)


def _unlink_socket(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)


class WakeSender:
    """Wakes the waiting threads of a store, in every process."""

    def __init__(self, store: Path) -> None:
        name = hashlib.sha256(str(store).encode()).hexdigest()[:16]
        # Not beside the file: a socket's path is limited to about 100 characters.
        self.folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        # A process may end without closing its store: no ResourceWarning.
        weakref.finalize(self, self._socket.close)

    def send(self) -> None:
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            # In a folder that others can write to, a dead process's socket may be anything by now.
            names = os.listdir(folder) if is_ours(os.fstat(folder)) else []  # noqa: PTH208
            for name in names:
                try:
                    self._socket.sendto(b"!", f"{self.folder}/{name}")
                except ConnectionRefusedError:  # its process is gone, or it is no socket
                    _unlink_socket(name, folder)
                except OSError:
                    continue  # its buffer is full: it will wake anyway
        finally:
            os.close(folder)

    def close(self) -> None:
        self._socket.close()
