"""A process that imports the app once, and forks a process for each job that needs its own.

Only after crashes, for jobs that lapsed before. It forks nothing if the import left behind what two
processes must not share: threads, sockets, files that are being written. Then it exits, and the
worker starts processes in the ordinary way. It ends when the worker does, and what it forked ends
with it. The worker's side, and what is said between the two: `forked_process.py`.

    python -m penstock.worker template SOCKET WORKER-PID TARGET [LOG-LEVEL LOG-FORMAT]
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import select
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

from penstock.app.locate import load_app
from penstock.app.log_lines import LogOutput, log_to_stderr
from penstock.errors import PenstockError
from penstock.worker.job_process import die_with_parent, serve
from penstock.worker.last_words import keep_last_words

_OWN = Path("/proc/self")
_HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"})

log = logging.getLogger("penstock.worker")


def main(number: int, worker: int, target: str, *output: str) -> None:
    control = socket.socket(fileno=number)
    try:
        worker_end = os.pidfd_open(worker)
    except OSError:
        return
    if os.getppid() != worker:  # it has died already, and the number is another's
        return
    known = _descriptors()
    if output:
        log_to_stderr(LogOutput(*output))
    app = load_app(target)
    with suppress(PenstockError):  # for what that imports; a store that is away is no obstacle
        _ = app.broker
    app.disconnect()
    if obstacle := obstacle_to_forking(known):
        log.info("jobs that crashed before share no import of the app: %s", obstacle)
        return
    gc.collect()
    gc.freeze()
    connection = _Template(control, worker_end).fork_on_request()
    if connection is not None:
        serve(app, connection)


class _Template:
    """Forks whenever the worker asks, and reports how each of its processes ended."""

    def __init__(self, control: socket.socket, worker_end: int) -> None:
        self._control = control
        self._worker_end = worker_end
        self._running: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of the process
        self._ended: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of `status`
        self._poll = select.poll()
        for descriptor in (control.fileno(), worker_end):
            self._poll.register(descriptor, select.POLLIN)

    def fork_on_request(self) -> socket.socket | None:
        """In a forked process: the socket for its jobs. None in the template, when it may end."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._worker_end:
                    return None
                if descriptor == self._control.fileno():
                    descriptors = self._request()
                    if not descriptors:
                        return None
                    connection = self._fork(*descriptors)
                    if connection is not None:
                        return connection
                elif descriptor in self._running:
                    self._report_end(descriptor)
                else:
                    self._forget(descriptor)

    def _request(self) -> list[int]:
        """The descriptors for a new process; none if the worker needs no more."""
        with suppress(OSError):
            return socket.recv_fds(self._control, 1, 3)[1]
        return []

    def _fork(self, connection: int, words: int, status: int) -> socket.socket | None:
        template = os.getpid()
        pid = os.fork()
        if pid:
            os.close(connection)
            os.close(words)
            end = os.pidfd_open(pid)
            self._running[end] = (pid, socket.socket(fileno=status))
            self._poll.register(end, select.POLLIN)
            return None
        os.setsid()  # its whole group is ended together
        die_with_parent(template)
        self._close()
        _reseed()
        keep_last_words(words)
        with socket.socket(fileno=status) as answer, suppress(OSError):  # the worker may be dead
            answer.send(str(os.getpid()).encode())
        return socket.socket(fileno=connection)

    def _close(self) -> None:
        """In a forked process: close what belongs to the template and to the other processes."""
        self._control.close()
        os.close(self._worker_end)
        for end, (_, status) in self._running.items():
            os.close(end)
            status.close()
        for _, status in self._ended.values():
            status.close()

    def _report_end(self, end: int) -> None:
        """Tell the worker how it ended; its number stays its own until the worker forgets it."""
        pid, status = self._running.pop(end)
        self._poll.unregister(end)
        os.close(end)
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        code = 0 if info is None else info.si_status
        if info is not None and info.si_code != os.CLD_EXITED:
            code = -code
        with suppress(OSError):
            status.send(str(code).encode())
        self._ended[status.fileno()] = (pid, status)
        self._poll.register(status, 0)  # an end of the line is told all the same

    def _forget(self, descriptor: int) -> None:
        pid, status = self._ended.pop(descriptor)
        self._poll.unregister(descriptor)
        status.close()
        os.waitpid(pid, 0)


def obstacle_to_forking(known: set[int]) -> str | None:
    """What the import of an app left behind that a forked process must not share, in words."""
    threads = len(list(_OWN.joinpath("task").iterdir()))
    if threads > 1:
        return f"importing the app started {threads - 1} threads"
    for descriptor in sorted(_descriptors() - known):
        if not _may_be_shared(descriptor):
            return f"importing the app opened {_opened(descriptor)}"
    return None


def _descriptors() -> set[int]:
    listed = list(_OWN.joinpath("fd").iterdir())
    # The one that the listing used is closed, and the next file gets its number.
    return {int(path.name) for path in listed if path.is_symlink()}


def _opened(descriptor: int) -> str:
    return str(_OWN.joinpath("fd", str(descriptor)).readlink())


def _may_be_shared(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        return flags & os.O_ACCMODE == os.O_RDONLY or bool(flags & os.O_APPEND)
    return _opened(descriptor) in _HARMLESS_DEVICES


def _reseed() -> None:
    """Give numpy's global generator a seed of its own; Python's has one after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
