"""The files of detached jobs on this host: for each job a lock, a log, and which process runs it.

    <state folder>/<store>/<job id>.lock        held by the keeper; released when it ends, however
                           <job id>.log         what its processes printed, in all attempts
                           <job id>.<n>.json    which process runs the n-th attempt
                           <job id>.work        where a job that runs a file works

All of them are hints: the job's row in the store decides. No URL and no argument is written here.
The folder belongs to this user alone, and no link in it is followed: see `private_files`.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock.app.private_files import open_own, open_regular, private_folder
from penstock.app.settings import mask
from penstock.enqueue.ids import parse_id
from penstock.errors import Refused
from penstock.worker.detached.processes import ProcessId

log = logging.getLogger("penstock.worker")

SETTING = "PENSTOCK_STATE"
_TRIAL = bytes(4096)  # more than the files of a start need
_MOST_BYTES = 1 << 16  # of a .json file


class RunFile(ProcessId, frozen=True, kw_only=True):
    """The keeper of an attempt: which process it is, and the worker row that it renews."""

    job: str
    attempt: int
    worker: str

    @classmethod
    def of_this_process(cls, job: str, attempt: int, worker: str) -> RunFile:
        """For this process, as the keeper of an attempt."""
        process = msgspec.structs.asdict(ProcessId.own())
        return cls(job=job, attempt=attempt, worker=worker, **process)


def state_folder(url: str) -> Path:
    """The folder of a store's workers and detached jobs on this host, by the hash of its URL.

    Under PENSTOCK_STATE, else under the user's state folder.
    """
    store = hashlib.sha256(mask(url).encode()).hexdigest()[:16]
    if given := os.environ.get(SETTING):
        return Path(given).absolute() / store
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "penstock" / store


class StateFolder:
    """The files of one store's detached jobs on this host."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Create the folder; Refused if that fails, or if it belongs to another user."""
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

    def check_writable(self) -> None:
        """Refused if nothing can be written, as on a full disk; creates a missing folder.

        Called before a claim: the job would have to be put back.
        """
        with self._opened() as folder:
            file = open_own(".trial", os.O_WRONLY | os.O_CREAT, folder, shown=self._shown(".trial"))
            try:
                os.write(file, _TRIAL)
            finally:
                os.close(file)
                with suppress(OSError):
                    os.unlink(".trial", dir_fd=folder)

    def _shown(self, name: str) -> str:
        return str(self.path / name)

    def file(self, job: str, kind: str) -> Path:
        """The path of a job's lock or log."""
        return self.path / f"{parse_id(job)}.{kind}"

    def open_log(self, job: str) -> int:
        """Open the log of a job to append; returns a descriptor."""
        name = self.file(job, "log").name
        with self._opened() as folder:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            return open_own(name, flags, folder, shown=self._shown(name))

    def read_log(self, job: str) -> int:
        """Open the log of a job to read, also for an operator who does not own the folder."""
        path = self.file(job, "log")
        owners = {path.parent.stat().st_uid, os.geteuid()}
        return open_regular(path, os.O_RDONLY, owners=owners, single=True)

    def lock(self, job: str) -> int | None:
        """Take the job's lock; returns the descriptor that holds it, None if another process does.

        The kernel releases it when the process ends, however that happens.
        """
        name = self.file(job, "lock").name
        with self._opened() as folder:
            while True:
                flags = os.O_RDWR | os.O_CREAT
                descriptor = open_own(name, flags, folder, shown=self._shown(name))
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # The last holder may have removed the file meanwhile: then this lock is void.
                    with suppress(FileNotFoundError):
                        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if there.st_ino == os.fstat(descriptor).st_ino:
                            return descriptor
                except BlockingIOError:
                    os.close(descriptor)
                    return None
                os.close(descriptor)

    def work_folder(self, job: str) -> Path:
        """A folder of the job's own, made if need be; removed with its other files."""
        path = self.file(job, "work")
        with self._opened() as folder, suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=folder)
        return path

    def unlock(self, job: str, descriptor: int) -> None:
        """Release a lock, and remove its file."""
        self.file(job, "lock").unlink(missing_ok=True)
        os.close(descriptor)

    def write(self, run: RunFile) -> None:
        """Write the .json file of an attempt, atomically."""
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

    def runs(self, job: str = "") -> list[RunFile]:
        """The .json files, also of keepers that were killed; by job and attempt."""
        runs: list[RunFile] = []
        with suppress(OSError, Refused), private_folder(self.path, "", make=False) as folder:
            for name in os.listdir(folder):  # noqa: PTH208  a descriptor
                if name.startswith(job) and name.endswith(".json"):
                    with suppress(OSError, Refused, msgspec.DecodeError):
                        runs.append(_read(name, folder))
        return sorted(runs, key=lambda run: (run.job, run.attempt))

    def ended(self) -> set[tuple[str, int, str | None]]:
        """Attempts whose keeper ran on this host and has ended: job, attempt, and worker row.

        Then nobody holds the lock: the kernel released it. A keeper of another host, or of an
        earlier boot, is not among them: its lease decides.
        """
        return {(run.job, run.attempt, run.worker) for run in self.runs() if run.dead}

    def jobs(self) -> Iterator[str]:
        """The ids of jobs that have files here."""
        for job in sorted({path.name.partition(".")[0] for path in self.path.glob("*.*")}):
            with suppress(Refused):
                yield parse_id(job)

    def remove_run(self, run: RunFile) -> None:
        """Remove the .json file of an attempt that has ended."""
        self._json(run).unlink(missing_ok=True)

    def _json(self, run: RunFile) -> Path:
        return self.file(run.job, f"{run.attempt}.json")

    def remove_job(self, job: str) -> bool:
        """Remove all files of a job; False if a process holds its lock, or if it cannot be done.

        A process that the job left behind may still write there, or have done so as another user.
        """
        descriptor = self.lock(job)
        if descriptor is None:
            return False
        removed = True
        try:
            with self._opened() as folder:
                for name in os.listdir(folder):  # noqa: PTH208  a descriptor
                    try:
                        if name == self.file(job, "work").name:
                            shutil.rmtree(name, dir_fd=folder)
                        elif name.startswith(f"{parse_id(job)}."):
                            os.unlink(name, dir_fd=folder)
                    except FileNotFoundError:
                        pass
                    except OSError as error:
                        log.warning("job %s: not all of its files can be removed: %s", job, error)
                        removed = False
        finally:
            os.close(descriptor)
        return removed


def _read(name: str, folder: int) -> RunFile:
    file = open_own(name, os.O_RDONLY, folder)
    try:
        return msgspec.json.decode(os.read(file, _MOST_BYTES), type=RunFile)
    finally:
        os.close(file)
