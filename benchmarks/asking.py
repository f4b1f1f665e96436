"""The runner's end of peers/protocol.py: a process that is asked, and must answer in time."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0


class Failed(Exception):
    """A peer did not do what was asked; the sentence goes into the table."""


class Asked:
    """A program that answers requests, with its stderr in a file."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )
        self._log = log
        self._rest = b""

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def ask(self, do: str, *, patience: float = PATIENCE, **request: Any) -> Any:
        """The answer to one request."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps({"do": do, **request}).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise Failed(f"ended: {self._last_words()}") from None
        reply = json.loads(self._line(do, patience))
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["answer"]

    def close(self) -> None:
        """End it; what it started ends with its input."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _line(self, do: str, patience: float) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        until = time.monotonic() + patience
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(until - time.monotonic(), 0)):
                    # Its next answer would be the one to this request.
                    self._process.kill()
                    raise Failed(f"no answer to {do} within {patience:.0f} s")
                if not (part := os.read(pipe.fileno(), 65536)):
                    raise Failed(f"ended: {self._last_words()}")
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        self._process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][-300:] if lines else "without a word"
