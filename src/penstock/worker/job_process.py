"""A process of its own for a job: where a task asks for it, or a process died of the job before.

Kept and used again, one per hand; replaced when it dies. One length and one msgpack message per job
and per answer, over a socket pair; nothing is pickled. Should the worker die, the process ends at
once: the store will hand the job to somebody else.

    python -m penstock.worker process SOCKET WORKER-PID TARGET [LOG-LEVEL LOG-FORMAT]
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import queue
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from penstock.app.log_lines import LogOutput, log_output, log_to_stderr
from penstock.flows.flow import Flow
from penstock.job import Job, Outcome, Parcel

START_SECONDS = 60.0
_LENGTH = struct.Struct("<I")
_LOOK_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_COMMAND = (sys.executable, "-m", "penstock.worker", "process")

log = logging.getLogger("penstock.worker")


class ProcessGone(Exception):
    """It died while it had the job."""


class ProcessUnstartable(Exception):
    """It never came up; no job was given to it."""


class JobProcess:
    """The worker's end."""

    def __init__(self, target: str) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            number = theirs.fileno()
            try:
                self._process = subprocess.Popen(
                    [*_COMMAND, str(number), str(os.getpid()), target, *(log_output() or ())],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # its whole group is ended together
                )
            except BaseException:
                ours.close()
                raise
        ours.settimeout(START_SECONDS)
        try:
            receive(ours)
        except (OSError, EOFError):
            self.close(patience=0)
            raise ProcessUnstartable from None
        ours.settimeout(None)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: Job[Any], rules: int) -> Outcome | None:
        """Run the job there; ProcessGone if the process ends before it answers.

        `rules` is their version when it was claimed.
        """
        try:
            send(self._socket, msgspec.msgpack.encode((job, rules)))
            return whole_outcome(_answer.decode(receive_from(self._process, self._socket)))
        except (OSError, EOFError):
            self.close(patience=0)
            raise ProcessGone(str(self._process.returncode)) from None

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def close(self, patience: float = 2.0) -> None:
        """End it: it goes by itself when nobody is there any more, and is made to otherwise."""
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()  # the group: what the job left behind goes too
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


_answer = msgspec.msgpack.Decoder(Outcome | None)
_job: msgspec.msgpack.Decoder[tuple[Job[Any], int]] = msgspec.msgpack.Decoder(tuple[Job[Any], int])


def whole_outcome(outcome: Outcome | None) -> Outcome | None:
    """The outcome with what it spawned as jobs again; the line carries them as plain data."""
    if outcome is None or not outcome.spawned:
        return outcome
    return msgspec.structs.replace(
        outcome,
        spawned=tuple(
            msgspec.convert(part, Parcel if "bodies" in part else Job[Any])
            for part in outcome.spawned
        ),
        flow=msgspec.convert(outcome.flow, Flow | None),
    )


def send(line: socket.socket, message: bytes) -> None:
    line.sendall(_LENGTH.pack(len(message)) + message)


def receive(line: socket.socket) -> bytes:
    return _exactly(line, _LENGTH.unpack(_exactly(line, _LENGTH.size))[0])


def receive_from(process: subprocess.Popen[bytes], line: socket.socket) -> bytes:
    """What the process says next; EOFError if it ends before.

    Its end need not be the end of the line: whatever it forked has that open, too.
    """
    while not _readable(line, _LOOK_SECONDS):
        if process.poll() is not None and not _readable(line, 0):
            raise EOFError
    return receive(line)


def _readable(line: socket.socket, patience: float) -> bool:
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(1000 * patience))


def _exactly(line: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = line.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with the worker, where it can: no code of ours need run."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was quicker
        os._exit(1)


class _Reader(threading.Thread):
    """Takes jobs off the line, and notices its end while a job runs."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__(name="penstock-line", daemon=True)
        self.jobs: queue.SimpleQueue[tuple[Job[Any], int] | None] = queue.SimpleQueue()
        self.busy = False
        self._line = line

    def run(self) -> None:
        try:
            while True:
                job = _job.decode(receive(self._line))
                self.busy = True
                self.jobs.put(job)
        except (OSError, EOFError):
            if self.busy:
                os._exit(1)
            self.jobs.put(None)


def main(number: int, parent: int, target: str, *output: str) -> None:
    """The process's end: run jobs one by one until the line ends."""
    from penstock.app.locate import load_app
    from penstock.run.attempt import run, run_async
    from penstock.worker.start_check import StartCheck

    die_with_parent(parent)
    if output:
        log_to_stderr(LogOutput(*output))
    app = load_app(target)
    gate = StartCheck(app.broker)
    line = socket.socket(fileno=number)
    reader = _Reader(line)
    reader.start()
    send(line, b"")
    with asyncio.Runner() as runner:
        while (given := reader.jobs.get()) is not None:
            job, rules = given
            last_look = partial(gate.last_look, rules)
            task = app.task_named(job.task)
            if task is None:
                os._exit(1)  # its code is another than the worker's: a new process may know it
            if task.mode == "async":
                outcome = runner.run(run_async(app, task, job, last_look))
            else:
                outcome = run(app, task, job, last_look)
            reader.busy = False
            with suppress(OSError):
                send(line, msgspec.msgpack.encode(outcome))
        app.resources.close()  # while there is a loop: some of them live on it
