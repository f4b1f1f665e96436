"""What a process logged last, in memory that outlives it: evidence for jobs that crash with it.

    0        log lines of jobs, newest last: [job id, line] as JSON, one per line
    LOGGED   the Python stacks of its threads, if it died of SIGSEGV, SIGABRT, SIGBUS or SIGFPE

A job's evidence has the lines that its own code logged, never those of other jobs. Nothing is kept
of what a job with secrets logs.
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from penstock.enqueue.secrets import has_secrets
from penstock.run.current import CURRENT
from penstock.run.describe_error import LONGEST_TRACEBACK
from penstock.run.error_text import error_text
from penstock.worker.memory_use import out_of_memory_kills

LOGGED = 16 * 1024
MOST_LINES = 40
LONGEST_LINE = 300
_STACK_BYTES = 8 * 1024


class LastWords:
    """The reader's side: makes the memory, hands its descriptor to the process, reads it later."""

    def __init__(self, kills: Callable[[], int | None] = out_of_memory_kills) -> None:
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("penstock-last-words")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        os.ftruncate(self.descriptor, LOGGED)
        os.lseek(self.descriptor, LOGGED, os.SEEK_SET)  # where the process writes its stacks
        self._kills = kills
        self._kills_before = kills() or 0

    def evidence(self, job_id: str, death: str, memory: int) -> str:
        """The error of a job whose process died: how, and the memory that it used in bytes."""
        text = f"ProcessDied: the process that ran it died: {death}"
        if memory:
            text += f"; it used {memory >> 20} MB of memory"
        if "SIGKILL" in death and (self._kills() or 0) > self._kills_before:
            text += "; the kernel killed a process of this cgroup for lack of memory meanwhile"
        parts: list[str] = []
        if lines := self._lines(job_id):
            parts.append("\n".join(["Last log lines:", *lines]))
        if stack := self._stack():
            parts.append(stack)
        return error_text(text, "\n\n".join(parts), LONGEST_TRACEBACK).rstrip()

    def _lines(self, job_id: str) -> list[str]:
        logged = os.pread(self.descriptor, LOGGED, 0).partition(b"\0")[0]
        lines: list[str] = []
        for entry in logged.splitlines():
            try:
                logged_by, line = _entry.decode(entry)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off: the process died while it wrote
            if logged_by == job_id:
                lines.append(line)
        return lines

    def _stack(self) -> str:
        return os.pread(self.descriptor, _STACK_BYTES, LOGGED).decode("utf-8", "replace").strip()

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


_entry = msgspec.json.Decoder(tuple[str, str])


class LastWordsHandler(logging.Handler):
    """The process's side: keeps the last lines that jobs log."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._memory = mmap.mmap(descriptor, LOGGED)
        self._lines: deque[bytes] = deque(maxlen=MOST_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        current = CURRENT.get(None)
        if current is None or has_secrets(current.job.body):
            return
        try:
            at = time.strftime("%H:%M:%S", time.gmtime(record.created))
            line = f"{at} {record.levelname} {record.getMessage()}".replace("\n", " ")
            self._lines.append(msgspec.json.encode((current.id, line[:LONGEST_LINE])))
            kept: Sequence[bytes] = [*self._lines]
            while sum(map(len, kept)) + len(kept) >= LOGGED:
                kept = kept[1:]
            written = b"\n".join(kept)
            self._memory[: len(written) + 1] = written + b"\0"
        except Exception:
            self.handleError(record)


def keep_last_words(descriptor: int) -> None:
    """In a process that runs jobs: keep what it logs, and its stacks if it crashes."""
    logging.getLogger().addHandler(LastWordsHandler(descriptor))
    if not faulthandler.is_enabled():  # else the user wants the stacks elsewhere
        faulthandler.enable(descriptor)
