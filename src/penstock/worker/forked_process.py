"""The worker's side of processes that are forked from one which has imported the app.

After a crash many jobs need a process of their own at once, and to import the app takes most of the
time that a process needs to start. `process_template.py` is the other side. On the control socket a
message is a request, with three descriptors: the socket for jobs, the memory for last words, and
`status`, on which the process id and then the exit code come back.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from penstock.app.log_lines import log_output

START_SECONDS = 60.0
_COMMAND = (sys.executable, "-m", "penstock.worker", "template")
_LONGEST = 32  # bytes of a number

monotonic = time.monotonic


def can_fork() -> bool:
    """Whether this system has what a template needs."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class ForkedProcess:
    """A process of the template's, with the part of `subprocess.Popen` that is needed here."""

    def __init__(self, template: ProcessTemplate, status: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._template = template
        self._status = status

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; TimeoutExpired as of a Popen."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                code = self._status.recv(_LONGEST)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(_COMMAND, timeout or 0) from None
            except OSError:
                code = b""
            # Without an answer the template is gone, and the kernel has killed what it forked.
            self.returncode = int(code) if code else -signal.SIGKILL
        return self.returncode

    def forget(self) -> None:
        """Its process id may be used again; only now, so that no stranger is ever signalled."""
        self._status.close()
        self._template.released()


class ProcessTemplate:
    """Starts the template, and asks it for processes. Any thread may."""

    def __init__(self, target: str) -> None:
        self.broken = False  # it cannot fork: processes are started in the ordinary way
        self._alive = 0  # processes that were not forgotten
        self._used_at = monotonic()
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            arguments = [str(number), str(os.getpid()), target, *(log_output() or ())]
            try:
                self._process = subprocess.Popen(
                    [*_COMMAND, *arguments],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                self._control.close()
                raise

    def fork(self, connection: socket.socket, words: int) -> ForkedProcess | None:
        """A process that serves this socket; None if it has to be started in the ordinary way."""
        with self._lock:
            self._alive += 1
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = b""
        with suppress(OSError):
            with theirs:
                descriptors = [connection.fileno(), words, theirs.fileno()]
                socket.send_fds(self._control, [b"1"], descriptors)
            ours.settimeout(START_SECONDS)  # the first one waits for the import
            pid = ours.recv(_LONGEST)
        if pid:
            return ForkedProcess(self, ours, int(pid))
        self.broken = True
        ours.close()
        self.released()
        return None

    def released(self) -> None:
        """One process less."""
        with self._lock:
            self._alive -= 1
            self._used_at = monotonic()

    def idle_seconds(self) -> float:
        """For how long nothing that it forked has been there."""
        with self._lock:
            return 0.0 if self._alive else monotonic() - self._used_at

    def close(self) -> None:
        """End it, and with it every process that it forked."""
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()  # it is still importing the app, for example
        self._process.wait()
