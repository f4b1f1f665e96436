"""The files of detached jobs on this host: a lock, a log, and who runs it, for each job.

    <state folder>/<store>/<job id>.lock        held by the process that runs it, however that ends
                           <job id>.log         what its processes printed, in all attempts
                           <job id>.<n>.json    which process runs the n-th attempt

Hints all of them: the job's row in the store decides. No URL and no argument is written here. The
folder is ours alone, and no name in it is followed elsewhere: see `private_files`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.app.private_files import open_own, open_regular, private_folder
from penstock.app.settings import mask
from penstock.enqueue.ids import parse_id
from penstock.errors import Refused
from penstock.worker.detached.processes import boot_id, namespace, start_of

SETTING = "PENSTOCK_STATE"
_ROOM = bytes(4096)  # more than a start writes at first
_MOST_BYTES = 1 << 16  # of a file that says who runs a job


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The process that runs a job: which one, and under which row of the store."""

    job: str
    attempt: int
    worker: str
    host: str
    pid: int
    started: int  # in the kernel's ticks: tells it from a later process of this number
    boot: str
    namespace: str  # a container has numbers of its own

    @classmethod
    def here_and_now(cls, job: str, attempt: int, worker: str) -> Run:
        """This process, as the one that runs an attempt."""
        pid = os.getpid()
        return cls(
            job=job,
            attempt=attempt,
            worker=worker,
            host=socket.gethostname(),
            pid=pid,
            started=start_of(pid) or 0,
            boot=boot_id(),
            namespace=namespace(),
        )

    @property
    def here(self) -> bool:
        """Whether one can tell from here if it lives; if not, its lease does."""
        return self.host == socket.gethostname() and self.namespace == namespace()

    @property
    def alive(self) -> bool:
        """Whether this very process is there, on this host and in this boot."""
        return self.here and self.boot == boot_id() and start_of(self.pid) == self.started


def state_folder(url: str) -> Path:
    """Where the files of a store's detached jobs are on this host.

    Under PENSTOCK_STATE, else under the state folder of the user; stores do not meet in it.
    """
    store = hashlib.sha256(mask(url).encode()).hexdigest()[:16]
    if given := os.environ.get(SETTING):
        return Path(given).absolute() / store
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "penstock" / store


class Folder:
    """The files of one store's detached jobs on this host; made when they are first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Refused if it cannot be made, or is somebody else's."""
        with self._opened():
            pass

    @contextmanager
    def _opened(self) -> Generator[int]:
        try:
            with private_folder(self.path, f"let {SETTING} name another one") as folder:
                yield folder
        except OSError as error:
            raise Refused(
                f"the state folder {self.path} of detached jobs cannot be made or written to: "
                f"{error.strerror or error}; make room, or let {SETTING} name another one"
            ) from error

    def try_out(self) -> None:
        """Refused if nothing can be written here, as on a full disk; made again if it was removed.

        Asked before a job is claimed: it would have to be put back.
        """
        with self._opened() as folder:
            file = open_own(".room", os.O_WRONLY | os.O_CREAT, folder, shown=self._shown(".room"))
            try:
                os.write(file, _ROOM)
            finally:
                os.close(file)
                with suppress(OSError):
                    os.unlink(".room", dir_fd=folder)

    def _shown(self, name: str) -> str:
        return str(self.path / name)

    def file(self, job: str, kind: str) -> Path:
        """The lock or the log of a job."""
        return self.path / f"{parse_id(job)}.{kind}"

    def open_log(self, job: str) -> int:
        """The log of a job, to be written on: a descriptor."""
        name = self.file(job, "log").name
        with self._opened() as folder:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            return open_own(name, flags, folder, shown=self._shown(name))

    def read_log(self, job: str) -> int:
        """The log of a job, to be read, also by an operator whose folder this is not."""
        path = self.file(job, "log")
        owners = {path.parent.stat().st_uid, os.geteuid()}
        return open_regular(path, os.O_RDONLY, owners=owners, single=True)

    def lock(self, job: str) -> int | None:
        """Take the job's lock: a descriptor that holds it until it is closed; None if it is held.

        It goes with the process, however that ends. Nobody takes it only to look.
        """
        name = self.file(job, "lock").name
        with self._opened() as folder:
            while True:
                flags = os.O_RDWR | os.O_CREAT
                descriptor = open_own(name, flags, folder, shown=self._shown(name))
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Whoever held it may have removed the file in between: then it is nobody's.
                    with suppress(FileNotFoundError):
                        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if there.st_ino == os.fstat(descriptor).st_ino:
                            return descriptor
                except BlockingIOError:
                    os.close(descriptor)
                    return None
                os.close(descriptor)

    def unlock(self, job: str, descriptor: int) -> None:
        """Give back a lock that is held, and leave no file of it."""
        self.file(job, "lock").unlink(missing_ok=True)
        os.close(descriptor)

    def write(self, run: Run) -> None:
        """Say who runs this attempt; seen as a whole or not at all."""
        path = self._json(run)
        name, draft = path.name, path.with_suffix(".draft").name
        with self._opened() as folder:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            file = open_own(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder)
            try:
                with os.fdopen(file, "wb") as written:
                    written.write(msgspec.json.encode(run))
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise

    def runs(self, job: str = "") -> list[Run]:
        """Who runs what, or did and was killed; of one job the last attempt last."""
        found: list[Run] = []
        with suppress(OSError, Refused), private_folder(self.path, "", make=False) as folder:
            for name in os.listdir(folder):  # noqa: PTH208  a descriptor
                if name.startswith(job) and name.endswith(".json"):
                    with suppress(OSError, Refused, msgspec.DecodeError):
                        found.append(_read(name, folder))
        return sorted(found, key=lambda run: (run.job, run.attempt))

    def jobs(self) -> Iterator[str]:
        """The jobs that have files here."""
        for job in sorted({path.name.partition(".")[0] for path in self.path.glob("*.*")}):
            with suppress(Refused):
                yield parse_id(job)

    def ended(self, run: Run) -> None:
        """Forget who ran this attempt, which is over."""
        self._json(run).unlink(missing_ok=True)

    def _json(self, run: Run) -> Path:
        return self.file(run.job, f"{run.attempt}.json")

    def forget(self, job: str) -> bool:
        """Remove all files of a job that the store has forgotten; False if a process has it."""
        descriptor = self.lock(job)
        if descriptor is None:
            return False
        try:
            with self._opened() as folder:
                for name in os.listdir(folder):  # noqa: PTH208  a descriptor
                    if name.startswith(f"{parse_id(job)}."):
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=folder)
        finally:
            os.close(descriptor)
        return True


def _read(name: str, folder: int) -> Run:
    file = open_own(name, os.O_RDONLY, folder)
    try:
        return msgspec.json.decode(os.read(file, _MOST_BYTES), type=Run)
    finally:
        os.close(file)
