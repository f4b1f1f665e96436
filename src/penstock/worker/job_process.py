"""A process that runs single jobs: for `mode="process"`, and for jobs whose process died before.

The latter are forked from a template where that is possible (`forked_process.py`). It is used again
for the next job (see `idle_processes`). A message is a length and msgpack, over a socket pair;
nothing is pickled:

    worker -> process   a job
    process -> worker   empty: may it still start?      worker -> process   None, or its outcome
    process -> worker   the outcome

When it has waited for a second it closes the store, and a job that needs the store opens it again.
If the worker dies, the process ends at once: the store gives the job to another worker.

    python -m penstock.worker process SOCKET WORKER-PID LAST-WORDS TARGET [LOG-LEVEL LOG-FORMAT]
"""

from __future__ import annotations

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
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.log_lines import LogOutput, log_output, log_to_stderr
from penstock.flows.flow import Flow
from penstock.job import Job, Outcome, Parcel
from penstock.worker.forked_process import START_SECONDS, ForkedProcess, ProcessTemplate
from penstock.worker.last_words import LastWords, keep_last_words
from penstock.worker.memory_use import memory_of

if TYPE_CHECKING:
    import asyncio

    from penstock.app.app import App
    from penstock.run.attempt import LastLook

_LENGTH = struct.Struct("<I")
_LOOK_SECONDS = 0.5
_DISCONNECT_SECONDS = 1.0  # without a job, then it has no connection to the store
_PR_SET_PDEATHSIG = 1
_COMMAND = (sys.executable, "-m", "penstock.worker", "process")

log = logging.getLogger("penstock.worker")


class ProcessGone(Exception):
    """It died while it had the job; the text says how, `evidence` all that is known."""

    def __init__(self, death: str, evidence: str | None = None) -> None:
        super().__init__(death)
        self.evidence = evidence


class ProcessUnstartable(Exception):
    """It could not start; no job was given to it."""


class JobProcess:
    """The worker's side."""

    def __init__(self, target: str, template: ProcessTemplate | None = None) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._words = LastWords()
        self.memory = 0  # bytes, when last looked at
        self._forgotten = False
        with theirs:
            words = self._words.descriptor
            try:
                forked = None if template is None else template.fork(theirs, words)
                self._process = forked or _start(target, theirs.fileno(), words)
            except BaseException:
                ours.close()
                self._words.close()
                raise
        ours.settimeout(START_SECONDS)
        try:
            receive(ours)
        except (OSError, EOFError):
            self.close(timeout=0)
            raise ProcessUnstartable from None
        ours.settimeout(None)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def forked(self) -> bool:
        return isinstance(self._process, ForkedProcess)

    def run(self, job: Job[Any], last_look: LastLook) -> Outcome | None:
        """Run the job there; ProcessGone if the process ends before it answers.

        `last_look` is called here, so that the process need not follow the rules.
        """
        self.look_at_memory()
        try:
            send(self._socket, msgspec.msgpack.encode(job))
            while not (message := receive_from(self._process, self._socket)):
                send(self._socket, msgspec.msgpack.encode(last_look(job)))
            return typed_outcome(_answer.decode(message))
        except (OSError, EOFError):
            self._end(timeout=0)
            death = describe_exit(self._process.wait())
            gone = ProcessGone(death, self._words.evidence(job.id, death, self.memory))
            self._words.close()
            raise gone from None

    def look_at_memory(self) -> None:
        """Remember how much memory it uses, for the case that it dies."""
        self.memory = memory_of(self._process.pid) or self.memory

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def leave(self) -> None:
        """Let it exit by itself; `close` must follow."""
        self._socket.close()

    def close(self, timeout: float = 2.0) -> None:
        """End it: it exits by itself when the socket is closed, and is killed otherwise."""
        self._end(timeout)
        self._words.close()

    def _end(self, timeout: float) -> None:
        self.leave()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        self.kill()  # the whole group: processes that the job left behind, too
        self._process.wait()
        if isinstance(self._process, ForkedProcess) and not self._forgotten:
            self._forgotten = True
            self._process.forget()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _start(target: str, number: int, words: int) -> subprocess.Popen[bytes]:
    """A new process, which imports the app."""
    arguments = [str(number), str(os.getpid()), str(words), target, *(log_output() or ())]
    return subprocess.Popen(
        [*_COMMAND, *arguments],
        pass_fds=[number, words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # its whole group is ended together
    )


_answer = msgspec.msgpack.Decoder(Outcome | None)
_job: msgspec.msgpack.Decoder[Job[Any]] = msgspec.msgpack.Decoder(Job[Any])


def describe_exit(code: int) -> str:
    """An exit code, or the signal that ended the process, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def typed_outcome(outcome: Outcome | None) -> Outcome | None:
    """The outcome with spawned jobs as `Job`s: they were decoded as plain dicts."""
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


def send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket) -> bytes:
    return _receive_exactly(
        connection, _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))[0]
    )


def receive_from(
    process: subprocess.Popen[bytes] | ForkedProcess, connection: socket.socket
) -> bytes:
    """The next message of the process; EOFError if it ends before.

    Its end alone does not close the socket: processes that it forked have that open, too.
    """
    while not _readable(connection, _LOOK_SECONDS):
        if process.poll() is not None and not _readable(connection, 0):
            raise EOFError
    return receive(connection)


def _readable(connection: socket.socket, timeout: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * timeout))


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, where it can."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has died already
        os._exit(1)


class _Reader(threading.Thread):
    """Receives messages, and ends the process if the worker goes away while a job runs."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(name="penstock-jobs", daemon=True)
        self.messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.busy = False
        self._connection = connection

    def run(self) -> None:
        try:
            while True:
                message = receive(self._connection)
                self.busy = True
                self.messages.put(message)
        except (OSError, EOFError):
            if self.busy:
                os._exit(1)
            self.messages.put(None)

    def next_job(self, app: App) -> Job[Any] | None:
        """None: the worker needs this process no more."""
        try:
            message = self.messages.get(timeout=_DISCONNECT_SECONDS)
        except queue.Empty:
            app.disconnect()
            message = self.messages.get()
        return None if message is None else _job.decode(message)

    def last_look(self, job: Job[Any]) -> Outcome | None:  # noqa: ARG002  the worker knows which one
        """Ask the worker whether the job may still start."""
        send(self._connection, b"")
        return _answer.decode(self.messages.get() or b"")


def main(number: int, parent: int, words: int, target: str, *output: str) -> None:
    """The process's side: import the app, and run jobs until the worker closes the socket."""
    from penstock.app.locate import load_app

    die_with_parent(parent)
    if output:
        log_to_stderr(LogOutput(*output))
    keep_last_words(words)
    app = load_app(target)
    _ = app.broker  # what that imports is not part of the first job's time
    serve(app, socket.socket(fileno=number))


def serve(app: App, connection: socket.socket) -> None:
    """Run jobs one by one until the worker closes the socket."""
    from penstock.run.attempt import run, run_async

    reader = _Reader(connection)
    reader.start()
    with suppress(OSError):  # the worker may be dead already: the reader hears of it
        send(connection, b"")
    runner: asyncio.Runner | None = None
    with ExitStack() as until_end:
        while (job := reader.next_job(app)) is not None:
            task = app.task_named(job.task)
            if task is None:
                os._exit(
                    1
                )  # the code has changed since this process started: a new one knows the task
            if task.mode == "async":
                if runner is None:
                    import asyncio

                    runner = until_end.enter_context(asyncio.Runner())
                outcome = runner.run(run_async(app, task, job, reader.last_look))
            else:
                outcome = run(app, task, job, reader.last_look)
            reader.busy = False
            with suppress(OSError):
                send(connection, msgspec.msgpack.encode(outcome))
        app.resources.close()  # before the event loop, which some of them need
