"""The process that calls a detached task's function, and the keeper's end of the line to it.

The function runs on the main thread, so that a signal gets at it wherever it is, also in a sleep or
a read. It ends with its keeper, by the kernel's hand: no attempt goes on without somebody who
renews its lease. One job, then it is over.

    python -m penstock.worker run SOCKET KEEPER-PID TARGET LOG-LEVEL LOG-FORMAT
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.log_lines import LogOutput, log_to_stderr
from penstock.app.store_retry import Patience
from penstock.job import Job, Outcome
from penstock.worker.detached.exit_codes import Exit
from penstock.worker.detached.processes import MARK, mark_of
from penstock.worker.interrupt import ERRORS, forget, interrupt, waits_beside
from penstock.worker.job_process import (
    ProcessGone,
    die_with_parent,
    receive,
    receive_from,
    send,
    whole_outcome,
)

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.run.attempt import LastLook
    from penstock.task.task import Task

_COMMAND = (sys.executable, "-m", "penstock.worker", "run")
_LOOK_SECONDS = 0.1

_given: msgspec.msgpack.Decoder[tuple[Job[Any], int]] = msgspec.msgpack.Decoder(
    tuple[Job[Any], int]
)
_answer = msgspec.msgpack.Decoder(Outcome | None)


class RunProcess:
    """The keeper's end. Started when made; by a thread that stays until it has ended."""

    def __init__(self, target: str, job: Job[Any], output: LogOutput) -> None:
        ours, theirs = socket.socketpair()
        self._line = ours
        self._sending = threading.Lock()
        self._has_job = False
        self._verdict: str | None = None  # that came before the job was given
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
        """Its code is loaded; ProcessGone if it ended before."""
        with self._or_gone():
            receive_from(self._process, self._line)

    def run(self, job: Job[Any], rules: int) -> Outcome | None:
        """Have it run the job; ProcessGone if it ends before it answers."""
        with self._or_gone():
            with self._sending:
                send(self._line, msgspec.msgpack.encode((job, rules)))
                self._has_job = True
                if self._verdict is not None:
                    send(self._line, self._verdict.encode())
            return whole_outcome(_answer.decode(receive_from(self._process, self._line)))

    def interrupt(self, verdict: str) -> None:
        """Raise the verdict's error in the function."""
        with suppress(OSError), self._sending:
            if self._has_job:
                send(self._line, verdict.encode())
            else:
                self._verdict = verdict

    def kill(self) -> None:
        """End it and its group: all that can be found where there is no /proc."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self, patience: float) -> None:
        """Let it go by itself for so long; whoever is left then is ended with the others."""
        self._line.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)

    def _or_gone(self) -> _OrGone:
        return _OrGone(self._process)


class _OrGone:
    """An end of the line is the end of the process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, (OSError, EOFError)):
            raise ProcessGone(str(self._process.wait())) from None


class _Verdicts(threading.Thread):
    """Takes verdicts off the line, and brings them to the function."""

    def __init__(self, line: socket.socket) -> None:
        super().__init__(name="penstock-verdicts", daemon=True)
        self._line = line
        self._verdict = "shutdown"  # of a SIGTERM that did not come from here
        self._armed = False
        self._bringing = False
        self._raised = threading.Event()
        self._main = threading.main_thread().ident or 0
        self._on_loop: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        signal.signal(signal.SIGTERM, self._raise)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        try:
            while True:
                self._verdict = receive(self._line).decode()
                if self._on_loop is not None:
                    loop, task = self._on_loop
                    loop.call_soon_threadsafe(task.cancel, self._verdict)
                else:
                    self._bring()
        except (OSError, EOFError):
            os._exit(Exit.NO_OUTCOME)  # the keeper is gone, where the kernel does not see to it

    def _bring(self) -> None:
        """Raise the verdict's error in the function, once."""
        self._bringing = True
        while not self._raised.is_set():
            if self._armed and waits_beside(self._main):
                self._raised.set()
                interrupt(self._main, self._verdict)
                return
            # To the thread, not the process: only so a call that waits is woken.
            signal.pthread_kill(self._main, signal.SIGTERM)
            if self._raised.wait(_LOOK_SECONDS) or not self._armed:
                break

    def _raise(self, number: int, frame: FrameType | None) -> None:
        del number
        if self._on_loop is not None:
            self._on_loop[1].cancel(self._verdict)
        elif self._armed and not self._raised.is_set():
            if not waits_beside(self._main, frame):
                self._raised.set()
                raise ERRORS[self._verdict]
            if not self._bringing:  # somebody sent a signal; not from here, where it would arrive
                threading.Timer(_LOOK_SECONDS, self._bring).start()

    def call(
        self, app: App, task: Task[..., Any], job: Job[Any], last_look: LastLook
    ) -> Outcome | None:
        """Run the job, open to verdicts while it runs."""
        from penstock.run.attempt import run

        if task.mode == "async":
            return asyncio.run(self._call_async(app, task, job, last_look))
        self._armed = True
        outcome = run(app, task, job, last_look)
        self._armed = False
        forget(self._main)
        return outcome

    async def _call_async(
        self, app: App, task: Task[..., Any], job: Job[Any], last_look: LastLook
    ) -> Outcome | None:
        from penstock.run.attempt import run_async

        call = asyncio.ensure_future(run_async(app, task, job, last_look))
        self._on_loop = (asyncio.get_running_loop(), call)
        try:
            return await call
        finally:
            self._on_loop = None
            await asyncio.to_thread(app.resources.close)


def main(number: int, parent: int, target: str, *output: str) -> None:
    """The process's end: run one job."""
    from penstock.app.locate import load_app
    from penstock.worker.start_check import StartCheck

    die_with_parent(parent)
    log_to_stderr(LogOutput(*output))
    stdout: Any = sys.stdout
    if stdout is not None:  # whoever follows its log sees each line, and a kill takes none along
        stdout.reconfigure(line_buffering=True)
    line = socket.socket(fileno=number)
    app = load_app(target)
    app.patience = Patience(math.inf)
    gate = StartCheck(app.broker)
    try:
        send(line, b"")
        job, rules = _given.decode(receive(line))
    except (OSError, EOFError):  # it was cancelled before it began
        os._exit(Exit.NO_OUTCOME)
    task = app.task_named(job.task)
    if task is None:
        os._exit(Exit.MISSING)
    verdicts = _Verdicts(line)
    verdicts.start()
    outcome = verdicts.call(app, task, job, partial(gate.last_look, rules))
    with suppress(Exception):  # the function may have closed it
        sys.stdout.flush()
    with suppress(OSError):
        send(line, msgspec.msgpack.encode(outcome))
    app.close()
    # What the function left running on threads of its own must not keep the process.
    os._exit(Exit.DONE)
