"""The process that calls a detached task's function, and the keeper's side of the socket to it.

The function runs on the main thread, so that a signal interrupts it anywhere, also in a sleep or a
read. The kernel kills this process when its keeper dies: no attempt goes on without a renewed
lease. It runs one job and exits.

    python -m penstock.worker run SOCKET KEEPER-PID TARGET LOG-LEVEL LOG-FORMAT
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.log_lines import LogOutput, log_to_stderr
from penstock.app.store_retry import Patience
from penstock.job import Job, Outcome
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.processes import MARK, mark_of
from penstock.worker.interrupt import ERRORS, forget, interrupt, waits_for_other_process
from penstock.worker.job_process import (
    ProcessGone,
    describe_exit,
    die_with_parent,
    receive,
    receive_from,
    send,
    typed_outcome,
)

if TYPE_CHECKING:
    import asyncio

    from penstock.app.app import App
    from penstock.run.attempt import LastLook
    from penstock.task.task import Task

_COMMAND = (sys.executable, "-m", "penstock.worker", "run")
_RETRY_SECONDS = 0.1

_job_and_rules: msgspec.msgpack.Decoder[tuple[Job[Any], int]] = msgspec.msgpack.Decoder(
    tuple[Job[Any], int]
)
_answer = msgspec.msgpack.Decoder(Outcome | None)


class RunProcess:
    """The keeper's side. Made by a thread that outlives it: the kernel watches that thread."""

    def __init__(self, target: str, job: Job[Any], output: LogOutput) -> None:
        ours, theirs = socket.socketpair()
        self._connection = ours
        self._sending = threading.Lock()
        self._has_job = False
        self._interrupt_reason: str | None = (
            None  # of an interrupt that came before the job was sent
        )
        with theirs:
            number = theirs.fileno()
            try:
                self._process = subprocess.Popen(
                    [*_COMMAND, str(number), str(os.getpid()), target, *output],
                    pass_fds=[number],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env={**os.environ, MARK: mark_of(job.id, job.attempt)},
                )
            except BaseException:
                ours.close()
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_up(self) -> None:
        """Return when its code is loaded; ProcessGone if it ends before."""
        with self._or_gone():
            receive_from(self._process, self._connection)

    def run(self, job: Job[Any], rules: int) -> Outcome | None:
        """Send it the job and wait for the outcome; ProcessGone if it ends before that."""
        with self._or_gone():
            with self._sending:
                send(self._connection, msgspec.msgpack.encode((job, rules)))
                self._has_job = True
                if self._interrupt_reason is not None:
                    send(self._connection, self._interrupt_reason.encode())
            return typed_outcome(_answer.decode(receive_from(self._process, self._connection)))

    def interrupt(self, reason: str) -> None:
        """Raise the error for this reason in the function."""
        with suppress(OSError), self._sending:
            if self._has_job:
                send(self._connection, reason.encode())
            else:
                self._interrupt_reason = reason

    def kill(self) -> None:
        """Kill it and its process group; where there is no /proc, nothing else can be found."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, timeout: float) -> None:
        """Let it exit by itself for this long; the caller kills what is left then."""
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    @contextmanager
    def _or_gone(self) -> Generator[None]:
        try:
            yield
        except (OSError, EOFError):
            raise ProcessGone(describe_exit(self._process.wait())) from None


class _Interrupts(threading.Thread):
    """Receives interrupts from the keeper, and raises them in the function."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(name="penstock-interrupts", daemon=True)
        self._connection = connection
        self._interrupt_reason = "shutdown"  # if somebody else sends SIGTERM
        self._armed = False  # the function runs
        self._raising = False
        self._raised = threading.Event()
        self._main = threading.main_thread().ident or 0
        self._on_loop: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        try:
            while True:
                self._interrupt_reason = receive(self._connection).decode()
                if self._on_loop is not None:
                    loop, task = self._on_loop
                    loop.call_soon_threadsafe(task.cancel, self._interrupt_reason)
                else:
                    self._raise_in_function()
        except (OSError, EOFError):
            os._exit(
                Exit.NO_OUTCOME
            )  # the keeper is dead, and the kernel did not kill this process

    def _raise_in_function(self) -> None:
        """Raise the error for the reason in the function, once."""
        self._raising = True
        while not self._raised.is_set():
            if self._armed and waits_for_other_process(self._main):
                self._raised.set()
                interrupt(self._main, self._interrupt_reason)
                return
            # To the thread, not to the process: this wakes a blocking call.
            signal.pthread_kill(self._main, signal.SIGTERM)
            if self._raised.wait(_RETRY_SECONDS) or not self._armed:
                break

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number
        if self._on_loop is not None:
            self._on_loop[1].cancel(self._interrupt_reason)
        elif self._armed and not self._raised.is_set():
            if not waits_for_other_process(self._main, frame):
                self._raised.set()
                raise ERRORS[self._interrupt_reason]
            # Somebody else's SIGTERM: raise it from a thread, which can wait for a good moment.
            if not self._raising:
                threading.Timer(_RETRY_SECONDS, self._raise_in_function).start()

    def call(
        self, app: App, task: Task[..., Any], job: Job[Any], last_look: LastLook
    ) -> Outcome | None:
        """Run the job; it can be interrupted meanwhile."""
        from penstock.run.attempt import run

        if task.mode == "async":
            import asyncio

            return asyncio.run(self._call_async(app, task, job, last_look))
        self._armed = True
        outcome = run(app, task, job, last_look)
        self._armed = False
        forget()
        return outcome

    async def _call_async(
        self, app: App, task: Task[..., Any], job: Job[Any], last_look: LastLook
    ) -> Outcome | None:
        import asyncio

        from penstock.run.attempt import run_async

        call = asyncio.ensure_future(run_async(app, task, job, last_look))
        self._on_loop = (asyncio.get_running_loop(), call)
        try:
            return await call
        finally:
            self._on_loop = None
            await asyncio.to_thread(app.resources.close)


def main(number: int, parent: int, target: str, *output: str) -> None:
    """The process's side: run one job."""
    from penstock.app.locate import load_app
    from penstock.worker.start_check import StartCheck

    die_with_parent(parent)
    log_to_stderr(LogOutput(*output))
    stdout: Any = sys.stdout
    if stdout is not None:  # readers of the log see each line at once, and a kill loses none
        stdout.reconfigure(line_buffering=True)
    connection = socket.socket(fileno=number)
    app = load_app(target)
    app.patience = Patience(math.inf)
    start_check = StartCheck(app.broker)
    try:
        send(connection, b"")
        job, rules = _job_and_rules.decode(receive(connection))
    except (OSError, EOFError):  # the keeper closed it: cancelled before the start
        os._exit(Exit.NO_OUTCOME)
    task = app.task_named(job.task)
    if task is None:
        os._exit(Exit.MISSING)
    interrupts = _Interrupts(connection)
    interrupts.start()
    outcome = interrupts.call(app, task, job, partial(start_check.last_look, rules))
    with suppress(Exception):  # the function may have closed it
        sys.stdout.flush()
    with suppress(OSError):
        send(connection, msgspec.msgpack.encode(outcome))
    app.close()
    # Threads that the function left running must not keep the process alive.
    os._exit(Exit.DONE)
