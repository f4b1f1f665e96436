"""Drivers in processes of their own, on a real cluster: to be killed, or to see others killed.

A driver makes one step after another, as its input says; `steps.py` is what runs there. Tasks wait
at gates, which are files: a task that comes to one makes `at-<gate>` and goes on once there is
`open-<gate>`, so that a test kills in the middle however quick the machine is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import penstock
from tests.stories.conftest import eventually

STEPS = Path(__file__).with_name("steps.py")
SOURCE = str(Path(penstock.__file__).parents[1])
SOON = 500.0


class Driver:
    """A Python process with a session on the cluster; what it says is in `folder`."""

    def __init__(
        self,
        master: str,
        url: str,
        folder: Path,
        program: Path = STEPS,
        *paths: str,
        **config: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._answers = folder / "answers"
        self._asked = 0
        self._log = folder / "driver.log"
        path = os.pathsep.join([SOURCE, *paths])
        settings = {
            "spark.cores.max": 2,
            "spark.sql.shuffle.partitions": 2,
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": path,
            **config,
        }
        command = [sys.executable, str(program), master, str(self._answers), json.dumps(settings)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, "PENSTOCK_URL": url, "PYTHONPATH": path},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, step: str, **options: Any) -> Callable[[], Any]:
        """Have it make a step; calling what comes back waits for the answer."""
        number = self._asked
        self._asked += 1
        assert self.process.stdin is not None
        line = json.dumps({"number": number, "step": step, **options})
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        return lambda: self._answer(number, step)

    def run(self, step: str, **options: Any) -> Any:
        return self.start(step, **options)()

    def kill(self) -> None:
        """Kill (-9) all of it: Python, and the Java that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _answer(self, number: int, step: str) -> Any:
        def look() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise AssertionError(f"the driver is gone: {self.log()[-4000:]}")
            return self._said().get(number)

        answer = eventually(look, SOON, f"{step} ends: {self.log()[-2000:]}")
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def _said(self) -> dict[int, dict[str, Any]]:
        if not self._answers.exists():
            return {}
        lines = self._answers.read_text(encoding="utf-8").splitlines(keepends=True)
        said = [json.loads(line) for line in lines if line.endswith("\n")]
        return {answer["number"]: answer for answer in said}


def arrived(folder: Path, gate: str) -> list[int]:
    """The processes that have come to a gate."""
    path = folder / f"at-{gate}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def open_gate(folder: Path, gate: str) -> None:
    (folder / f"open-{gate}").touch()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_of(worker: int) -> int:
    """The Java under which a Python worker runs; between them is the daemon that forked it."""
    return parent_of(parent_of(worker))


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def siblings_of(worker: int) -> list[int]:
    """The Python workers of the same daemon, this one included."""
    return children_of(parent_of(worker))


def workers_of(executor: int) -> list[int]:
    """The Python workers under an executor; between them are the daemons that fork them."""
    return [worker for daemon in children_of(executor) for worker in children_of(daemon)]
