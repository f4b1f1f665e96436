"""The notes of a running job: written at once, or gathered where many come quickly.

Progress and log lines are gathered; the first goes out at once, the rest at most every so often,
and one thread per process (the sweeper) writes what a busy task leaves lying. Every write is fenced
by the job's attempt: once the store says no, each further call raises StaleLease.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from penstock.broker.checks import legible
from penstock.broker.protocol import Broker
from penstock.broker.views import Note
from penstock.errors import PenstockError, StaleLease
from penstock.job import Job

T = TypeVar("T")

logger = logging.getLogger("penstock")

PROGRESS_SECONDS = 0.5
TOLD_STEP = 0.01  # the history has progress that moved so far, or after so long
TOLD_SECONDS = 60.0
LOG_SECONDS = 1.0
LOG_LINES = 100
MOST_LINES = 10_000  # kept while the store does not answer


class Progress(msgspec.Struct, frozen=True):
    """How far a job got: a fraction from 0 to 1, and a word about it."""

    fraction: float
    note: str = ""
    at: float = 0.0


class LogLine(msgspec.Struct, frozen=True):
    """One line that a job logged."""

    at: float
    level: str
    text: str


class Ask(Protocol):
    """Puts a question to the store that may be away, and gives its answer."""

    def __call__(self, question: Callable[[], T], /) -> T: ...


class Notebook:
    """The notes of one attempt."""

    def __init__(self, broker: Callable[[], Broker], job: Job[Any], ask: Ask) -> None:
        self._broker = broker
        self._job = job
        self._ask = ask
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._lines: list[LogLine] = []
        self._batches = 0
        self._progress_due = 0.0  # in monotonic seconds; 0: never written yet
        self._lines_due = 0.0
        self._told: Progress | None = None  # the last that went into the history
        self._stale = False
        self.held = False  # while the job's transaction is open, the store takes nothing else

    def write(self, kind: str, name: str, value: bytes) -> None:
        """Keep a note now."""
        self._ask(lambda: self._write(kind, name, value))

    def _write(self, kind: str, name: str, value: bytes, *, told: bool = True) -> None:
        if self.held:
            raise RuntimeError(
                f"{kind}: while transaction() is open nothing else can be written,"
                " the store's write lock is held; do it before"
            )
        broker = self._broker()
        note = Note(kind, legible(name), value, broker.clock.now(), told)
        if self._stale or not broker.note(self._job, note):
            self._stale = True
            raise StaleLease(
                f"job {self._job.id} is no longer held by attempt {self._job.attempt}: its lease"
                f" lapsed or it was settled, and this {kind} was not written"
            )

    def progress(self, progress: Progress) -> None:
        progress = msgspec.structs.replace(progress, note=legible(progress.note))
        with self._lock:
            self._progress = progress
            self._write_if_due(self._progress_due)

    def line(self, line: LogLine) -> None:
        line = msgspec.structs.replace(line, text=legible(line.text))
        with self._lock:
            self._lines.append(line)
            del self._lines[:-MOST_LINES]
            self._write_if_due(0.0 if len(self._lines) >= LOG_LINES else self._lines_due)

    def _write_if_due(self, due: float) -> None:
        if self._stale:
            self._forget()
            self._write("note", "", b"null")
        if not self.held and time.monotonic() >= due:
            try:
                self._write_gathered(time.monotonic())
            except StaleLease:
                raise
            except PenstockError as error:
                # What is only told to people does not fail the work; it is tried again.
                logger.warning("job %s: a note could not be written yet: %s", self._job.id, error)
        if self.gathered:
            _sweeper.watch(self)

    def flush(self) -> None:
        """Write whatever was gathered."""
        with self._lock:
            if not self.held:
                self._write_gathered(time.monotonic(), late=True)

    def hold(self) -> None:
        """Write whatever was gathered, and from now on nothing: a transaction is about to open."""
        with self._lock:
            if self.gathered:
                self._write_gathered(time.monotonic(), late=True)
            self.held = True

    def release(self) -> None:
        with self._lock:
            self.held = False

    def sweep(self) -> None:
        """Write what is due; called by the sweeper, which must not fail."""
        with self._lock:
            if self.held or self._stale:
                return
            try:
                self._write_gathered(time.monotonic())
            except StaleLease:
                return  # the task hears of it at its next call
            except Exception as error:
                logger.warning("job %s: a note could not be written yet: %s", self._job.id, error)
            if self.gathered:
                _sweeper.watch(self)

    @property
    def gathered(self) -> bool:
        return self._progress is not None or bool(self._lines)

    def _write_gathered(self, now: float, *, late: bool = False) -> None:
        progress, lines = self._progress, self._lines
        if progress is not None and (late or now >= self._progress_due):
            self._progress_due = now + PROGRESS_SECONDS
            told = self._changed_enough(progress)
            self._write("progress", "", msgspec.json.encode(progress), told=told)
            self._progress = None
            if told:
                self._told = progress
        if lines and (late or now >= self._lines_due or len(lines) >= LOG_LINES):
            self._lines_due = now + LOG_SECONDS
            name = f"{self._job.attempt:06d}.{self._batches + 1:06d}"
            self._write("log", name, msgspec.json.encode(lines))
            self._lines = []
            self._batches += 1

    def _changed_enough(self, progress: Progress) -> bool:
        """Whether the history should have it: a task may report twice a second for a day."""
        last = self._told
        if last is None:
            return True
        if (progress.fraction, progress.note) == (last.fraction, last.note):
            return False
        moved = abs(progress.fraction - last.fraction) >= TOLD_STEP
        ended = progress.fraction == 1.0 != last.fraction
        return moved or ended or progress.at - last.at >= TOLD_SECONDS

    def _forget(self) -> None:
        self._progress, self._lines = None, []


class _Sweeper:
    """One daemon thread that writes what lies in notebooks; it ends when there is nothing left."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Notebook] = set()
        self._thread: threading.Thread | None = None

    def watch(self, notebook: Notebook) -> None:
        with self._lock:
            self._watched.add(notebook)
            if self._thread is None:
                # Kept once it runs: a task that is interrupted right here must leave no thread
                # behind that everybody waits for and nobody started.
                thread = threading.Thread(target=self._run, name="penstock-notes", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            time.sleep(PROGRESS_SECONDS)
            with self._lock:
                watched, self._watched = self._watched, set()
                if not watched:
                    self._thread = None
                    return
            for notebook in watched:
                notebook.sweep()


_sweeper = _Sweeper()
