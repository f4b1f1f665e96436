"""A PostgreSQL server of one's own: a fresh data folder, a free port, gone when its owner is.

A watcher process (`watch`) cleans up, and it alone: also when the owner is killed. What this
class does to its server is what happens to servers: it is stopped, killed, frozen and started.
"""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self, TypeAlias

from penstock.errors import Refused
from penstock.testing.postgres import watch
from penstock.testing.postgres.databases import create_database
from penstock.testing.postgres.programs import User, find_programs, usable_by, user_to_run_as

Setting: TypeAlias = str | int | float | bool

# Below the range that outgoing connections take theirs from: the port is still free when a
# server that was stopped is started again.
_PORTS = range(20_000, 32_000)
_PATIENCE = 60.0
_RECOVERY_SECONDS = 300.0  # it reads its log again after a crash, which takes a busy machine long
_STOP = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Server:
    """A running PostgreSQL server, as safe as by default; ends with `close()` or with its owner.

    `settings` are those of postgresql.conf, and are read again at every `start()`. `major` chooses
    among the versions that are installed, `folder` the disk that the data is on.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting] | None = None,
        *,
        major: int | None = None,
        folder: Path | None = None,
    ) -> None:
        programs = find_programs(major)
        self.settings: dict[str, Setting] = dict(settings or {})
        self.major = programs.major
        self._owner = os.getpid()
        self._user = user_to_run_as()
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen: list[int] = []
        self._home = _make_folder(_temporary(), self._user)
        folders = [self._home]
        if folder is not None:
            folders.append(_make_folder(folder, self._user))
        self.data = folders[-1] / "data"
        self._log = self._home / "log"
        self._watcher = _start_watcher(self.data, folders)
        atexit.register(self.close)
        try:
            self._programs = usable_by(programs, self._user, self._home)
            self._make_data()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The server's first process, the parent of all others."""
        if self._process is None:
            raise Refused("The server is not running: start() it first")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def socket_folder(self) -> Path:
        """Where its unix socket is."""
        return self._home

    @property
    def log(self) -> str:
        """What the server has written so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """The URL of a fresh, empty database."""
        return create_database(self.url())

    def start(self) -> None:
        """Starts it on the port and the data that it has; returns when it accepts connections."""
        if self.running:
            return
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._home,
            **self.settings,
        }
        self._process = self._run(
            "postgres",
            "-D",
            str(self.data),
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        )
        deadline = time.monotonic() + _RECOVERY_SECONDS
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start; its log ends:\n{self.log[-4000:]}")
            time.sleep(0.005)

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stops it: `fast` ends its sessions in order, `immediate` as if it had crashed."""
        if self._process is None:
            return
        self.thaw()
        self._process.send_signal(_STOP[mode])
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kills (-9) its first process; returns when the others have noticed and are gone too."""
        if self._process is None:
            return
        children = watch.children_of(self.pid)
        self._process.kill()
        self._process.wait()
        self._process = None
        self._frozen = []
        watch.send(signal.SIGCONT, children)
        # One that is deep in a statement takes its time to notice.
        watch.send(signal.SIGKILL, watch.wait_until_gone(children))

    def freeze(self) -> None:
        """Stops all its processes where they stand: connections stay open, and nothing answers."""
        watch.send(signal.SIGSTOP, [self.pid])
        self._frozen = [self.pid]
        # The first one stands still now; what it was just starting shows up a moment later.
        while more := [pid for pid in watch.children_of(self.pid) if pid not in self._frozen]:
            watch.send(signal.SIGSTOP, more)
            self._frozen += more

    def thaw(self) -> None:
        """Lets it go on after `freeze()`."""
        watch.send(signal.SIGCONT, reversed(self._frozen))
        self._frozen = []

    def close(self) -> None:
        """Ends it and removes everything that it had; does nothing the second time."""
        # A forked child has this object too, and its end is not the server's.
        if os.getpid() != self._owner or self._watcher.returncode is not None:
            return
        atexit.unregister(self.close)
        self.stop("immediate")
        self._watcher.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start_on_a_free_port(self) -> None:
        for _ in range(5):
            self.port = _free_port()
            try:
                return self.start()
            except RuntimeError:
                # Somebody took it between our look and the start.
                if "could not bind" not in self.log:
                    raise
        return self.start()

    def _make_data(self) -> None:
        options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
        made = self._run("initdb", "--no-sync", *options, f"--pgdata={self.data}")
        if made.wait(_PATIENCE) != 0:
            raise RuntimeError(f"PostgreSQL's data folder was not made:\n{self.log[-4000:]}")

    def _run(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        # What the caller has set for a client (PGDATA, PGPORT) is not meant for this server.
        environment = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [str(self._programs.folder / program), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={**environment, "LC_ALL": "C"},
                # Control-C in a terminal is for the owner, who then closes the server.
                start_new_session=True,
                user=self._user and self._user.uid,
                group=self._user and self._user.gid,
                extra_groups=self._user and [],
            )

    def _accepts(self) -> bool:
        """As pg_ctl finds out: the server says so in the file that names its process."""
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        if len(lines) < 8 or lines[0] != str(self.pid):
            return False
        return lines[7].strip() in {"ready", "standby"}


def _start_watcher(data: Path, folders: list[Path]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", watch.__file__, str(data), *map(str, folders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        # Whoever kills the owner with its whole group does not reach the watcher.
        start_new_session=True,
    )


def _temporary() -> Path:
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108
    return next(filter(_open_to_others, places), places[0])


def _make_folder(parent: Path, user: User | None) -> Path:
    # The path of a unix socket has at most about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-", dir=parent)).absolute()
    if user is not None:
        if not _open_to_others(folder.parent):
            folder.rmdir()
            raise Refused(
                f"PostgreSQL does not run as root, and no other user may enter {parent}:"
                " name another folder"
            )
        os.chown(folder, user.uid, user.gid)
    return folder


def _open_to_others(folder: Path) -> bool:
    folder = folder.resolve()
    try:
        return all(step.stat().st_mode & 0o001 for step in (folder, *folder.parents))
    except OSError:
        return False


def _free_port() -> int:
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Refused(f"No port from {_PORTS[0]} to {_PORTS[-1]} is free on 127.0.0.1")
