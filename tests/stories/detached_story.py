"""The stories of detached jobs: a state folder of one's own beside the store, and its processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import StoreUnreachable
from penstock.worker.detached.processes import MARK
from penstock.worker.detached.state_folder import RunFile, StateFolder, state_folder
from tests.stories.conftest import Fleet, Story, alive, eventually

TASKS_FILE = Path(__file__).with_name("detached_tasks.py")
PATIENCE = 60.0


class DetachedStory(Story):
    """A store, its app, the workers on it, and what these started."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        sys.path.insert(0, str(TASKS_FILE.parent))
        try:
            import detached_tasks
        finally:
            sys.path.remove(str(TASKS_FILE.parent))
        self.app = detached_tasks.make_app(self.url)
        self.state = folder / "state"
        self.seen: set[int] = set()

    @property
    def files(self) -> StateFolder:
        path = state_folder(self.url)
        return StateFolder(self.state / path.name)

    def environment(self) -> dict[str, str]:
        # As for most users: Python keeps back what a job prints, unless it is told not to.
        inherited = {k: v for k, v in super().environment().items() if k != "PYTHONUNBUFFERED"}
        return {**inherited, "PENSTOCK_STATE": str(self.state)}

    def start(self, *, target: str | None = None, **options: Any) -> Fleet:
        # A busy machine keeps processes waiting for seconds, and a lapse is not what it is about.
        options = {"lease": 15.0, **options}
        return super().start(target=target or f"{TASKS_FILE}:app", **options)

    def tell(self, word: str) -> None:
        (self.folder / f"told-{word}").touch()

    def run_of(self, job: str) -> RunFile:
        """The process that runs the job, once there is one."""

        def running() -> RunFile | None:
            return next((run for run in self.files.runs(job) if run.alive), None)

        run = eventually(running, PATIENCE, "a process has the job")
        self.seen.add(run.pid)
        return run

    def log(self, job: str) -> str:
        """What the job's processes printed."""
        return self.files.file(job, "log").read_text()

    def answers(self) -> bool:
        """Whether the store does."""
        with suppress(StoreUnreachable):
            self.broker.count()
            return True
        return False

    def wait_for(self, word: str, count: int = 1) -> list[list[str]]:
        """The lines of the ledger that begin so, once there are so many."""

        def enough() -> list[list[str]]:
            lines = self.ledger(word)
            return lines if len(lines) >= count else []

        return eventually(enough, PATIENCE, f"{count} times {word}")

    def kill_group(self, fleet: Fleet) -> None:
        """End a worker as hard as can be: its whole process group at once."""
        os.killpg(fleet.pid, signal.SIGKILL)
        fleet.wait(PATIENCE)

    def marked(self) -> list[int]:
        """Processes that carry the mark of a detached job of this story."""
        found: list[int] = []
        ledger = f"LEDGER={self.ledger_file}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                variables = path.read_bytes().split(b"\0")
                if ledger in variables and any(
                    each.startswith(MARK.encode()) for each in variables
                ):
                    found.append(int(path.parent.name))
        return [pid for pid in found if alive(pid)]

    def close(self) -> None:
        for fleet in self.fleets:
            with suppress(ProcessLookupError):
                os.killpg(fleet.pid, signal.SIGKILL)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            pids = {run.pid for run in self.files.runs() if run.alive} | set(self.marked())
            if not pids:
                break
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        super().close()
