"""Waking up: a datagram says that something was committed, a look at the file is the safety net.

Every thread that waits owns a unix socket in a folder named after the store; whoever commits sends
one byte to each. Lost datagrams, other users and writers that know nothing of this are covered by
`pragma data_version`, which changes when another connection has committed.
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
    """One thread's listener."""

    def __init__(self, folder: Path, data_version: Callable[[], int]) -> None:
        self._data_version = data_version
        self._seen: int | None = None
        self._ear, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ear, False)
        self._folder = folder
        self._path: Path | None = None
        self._socket: socket.socket | None = None
        for _ in range(_TRIES):
            if not self.listens:
                self._listen()

    @property
    def listens(self) -> bool:
        """Whether it can be told; else it has to look."""
        return self._socket is not None

    def _listen(self) -> None:
        folder = self._folder
        path = folder / f"{os.getpid()}-{threading.get_ident():x}-{time.monotonic_ns():x}"
        made = None
        try:
            for each in (folder.parent, folder):  # both have names that others know
                with private_folder(each, "set TMPDIR"):
                    pass
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            made.bind(str(path))
        except (OSError, Refused):
            # The last one to leave took the folder with it; or it is somebody else's, or there are
            # no unix sockets here, and the look at the file has to do.
            if made is not None:
                made.close()
            return
        self._socket, self._path = made, path

    def wait(self, timeout: float) -> bool:
        """True when there may be news; what came since the last call counts."""
        until = time.monotonic() + timeout
        ears = [ear for ear in (self._socket, self._ear) if ear is not None]
        while True:
            version = self._data_version()
            if version != self._seen:
                self._seen = version
                self._drain()
                return True
            left = until - time.monotonic()
            ready = select.select(ears, [], [], max(0.0, min(left, _LOOK_SECONDS)))[0]
            if ready:
                self._drain()
                self._seen = self._data_version()
                return True
            if left <= 0:
                return False

    def ring(self) -> None:
        """End the wait; safe in a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._bell, b"!")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._ear, 4096):
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
            with contextlib.suppress(OSError):  # others listen there
                self._folder.rmdir()
        os.close(self._ear)
        os.close(self._bell)


def _unlink_socket(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)


class WakeSender:
    """Tells the waiters of a store, in every process, that something was committed."""

    def __init__(self, store: Path) -> None:
        name = hashlib.sha256(str(store).encode()).hexdigest()[:16]
        # Not beside the file: a socket's path is limited to about 100 characters.
        self.folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        # A process that ends without closing its store is in its right, and is not to be warned.
        weakref.finalize(self, self._socket.close)

    def ring(self) -> None:
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            # Where somebody else could put files, a socket of the dead may be anything by now.
            names = os.listdir(folder) if is_ours(os.fstat(folder)) else []  # noqa: PTH208
            for name in names:
                try:
                    self._socket.sendto(b"!", f"{self.folder}/{name}")
                except ConnectionRefusedError:  # its process is gone, or it is no socket
                    _unlink_socket(name, folder)
                except OSError:
                    continue  # its buffer is full: it has enough to wake up for
        finally:
            os.close(folder)

    def close(self) -> None:
        self._socket.close()
