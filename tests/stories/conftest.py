"""Stories: real processes on a real store, stopped and killed on purpose."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

import penstock
from penstock import StoreUnreachable, UnknownOutcome
from penstock.broker.position import BEGINNING
from penstock.broker.views import Event
from penstock.enqueue.handle import Handle
from penstock.job import State
from penstock.testing.checker import check_store
from penstock.testing.postgres import Server
from tests.checked_stores import (
    pytest_fixture_setup,
    pytest_runtest_makereport,
    pytest_runtest_teardown,
)

__all__ = ["pytest_fixture_setup", "pytest_runtest_makereport", "pytest_runtest_teardown"]

T = TypeVar("T")

TASKS_FILE = Path(__file__).with_name("story_tasks.py")
_SUPERVISE = (
    "import json, logging, sys; from penstock.worker import Supervisor; "
    "logging.basicConfig(level='INFO', format='%(process)d %(message)s'); "
    "sys.exit(Supervisor(sys.argv[1], log_level='info', **json.loads(sys.argv[2])).run())"
)


def eventually(look: Callable[[], T], timeout: float = 60.0, what: str = "") -> T:
    """What `look` sees, once it sees something."""
    until = time.monotonic() + timeout
    while (began := time.monotonic()) < until:
        if seen := look():
            return seen
        # A look that costs much is taken less often: what is waited for needs the time, too.
        time.sleep(max(0.02, 4 * (time.monotonic() - began)))
    raise AssertionError(f"it did not happen within {timeout} s: {what or look}")


class Fleet:
    """A supervisor and its children, as somebody with a shell sees them."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        """The processes that this one started, by the kernel's word."""
        with suppress(OSError):
            path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
            return [int(pid) for pid in path.read_text().split()]
        return []

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 60.0) -> int:
        return self.process.wait(timeout)

    def output(self) -> str:
        return self._output.read_text()

    def said_unanswered(self) -> int:
        """How often one of its processes has said that the store does not answer.

        What it says while it starts is counted by itself: the store has answered since.
        """
        lines = [line for line in self.output().splitlines() if "does not answer" in line]
        spoken = [re.search(r"(?:ERROR +|^)(\d+) the store", line) for line in lines]
        said = Counter(
            (found and found[1], line.rpartition(";")[2])
            for found, line in zip(spoken, lines, strict=True)
        )
        return max(said.values(), default=0)


class Story:
    """A store, its app, and the workers on it."""

    checks_its_store = True  # in `close`, when no worker is left

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.worker_url = url
        self.ledger_file = folder / "ledger"
        os.environ["LEDGER"] = str(self.ledger_file)
        sys.path.insert(0, str(TASKS_FILE.parent))
        try:
            import story_tasks
        finally:
            sys.path.remove(str(TASKS_FILE.parent))
        self.app = story_tasks.make_app(self.url)
        self.fleets: list[Fleet] = []

    @property
    def broker(self) -> Any:
        return self.app.broker

    def task(self, name: str) -> Any:
        return self.app.tasks[name]

    def environment(self) -> dict[str, str]:
        source = str(Path(penstock.__file__).parent.parent)
        return {
            **os.environ,
            "PENSTOCK_URL": self.worker_url,
            "LEDGER": str(self.ledger_file),
            "PYTHONPATH": source,
        }

    def start(
        self, *, target: str | None = None, path: Path | None = None, **options: Any
    ) -> Fleet:
        """A supervisor with these options, one process unless told otherwise.

        `path`: the folder with its Penstock and its app, if those are not ours.
        """
        environment = self.environment()
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        options = {"processes": 1, "lease": 3.0, "grace": 5.0, **options}
        output = self.folder / f"worker-{len(self.fleets)}.log"
        with output.open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _SUPERVISE,
                    target or f"{TASKS_FILE}:app",
                    json.dumps(options),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # a terminal of its own, as far as Ctrl-C goes
            )
        fleet = Fleet(process, output)
        self.fleets.append(fleet)
        return fleet

    def select(self, statement: str) -> list[tuple[Any, ...]]:
        """What a plain connection to the same database finds."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
                return connection.execute(statement).fetchall()
        with psycopg.connect(self.url) as connection:
            return connection.execute(statement).fetchall()

    def execute(self, statement: str) -> None:
        """Change something in the same database, over a plain connection."""
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
                connection.execute(statement)
                connection.commit()
        else:
            with psycopg.connect(self.url) as connection:
                connection.execute(statement)

    def ledger(self, word: str | None = None) -> list[list[str]]:
        """What was written down, oldest first."""
        if not self.ledger_file.exists():
            return []
        lines = [line.split() for line in self.ledger_file.read_text().splitlines()]
        return [line for line in lines if word is None or line[0] == word]

    def attempts(self, job_id: str | None = None) -> list[Event]:
        """The history's rows of attempts that ended."""
        rows: list[Event] = []
        after = BEGINNING
        while page := self.broker.history(after=after, limit=10_000, job=job_id):
            rows += page
            after = page[-1].position
        return [event for event in rows if event.kind == "attempt"]

    def successes(self) -> Counter[str]:
        """How often each job succeeded, by its history."""
        return Counter(
            event.job for event in self.attempts() if event.state is State.SUCCEEDED and event.job
        )

    def counted(self) -> Counter[str]:
        """How many attempts counted against their jobs, by reason: error, timeout, crashed."""
        return Counter(
            event.reason or ""
            for event in self.attempts()
            if event.state is not State.SUCCEEDED and event.reason != "shutdown"
        )

    def states(self, handles: list[Handle[Any]]) -> Counter[State]:
        return Counter(handle.state() for handle in handles)

    def close(self) -> None:
        for fleet in self.fleets:
            for pid in (*fleet.children(), fleet.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
            fleet.process.wait()
        try:
            verdict = check_store(self.broker, tolerance=0.05)
        finally:
            self.app.close()
        assert verdict.ok, verdict


def alive(pid: int) -> bool:
    """Whether the process is there, and not only waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Load:
    """A producer that goes on whatever happens to the store, and knows what was accepted.

    Sent one list after another, from a thread. Where the answer was lost the same jobs are sent
    again until there is one: an `UnknownOutcome` is not a refusal.
    """

    def __init__(self, story: Story, pause: float = 0.02, size: int = 20) -> None:
        self.accepted: list[str] = []
        self.refused = 0
        self.unknown = 0
        self._app = story.app
        self._task = story.task("nap")
        self._pause = pause
        self._size = size
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        number = 0
        while not self._over.wait(self._pause):
            jobs: list[Any] = [self._task.job(number + step) for step in range(self._size)]
            number += self._size
            ids = [job.id for job in jobs]
            while not self._sent(jobs):
                time.sleep(0.05)
            self.accepted += ids

    def _sent(self, jobs: list[Any]) -> bool:
        try:
            self._app.enqueue(jobs)
        except StoreUnreachable:
            self.refused += 1
        except UnknownOutcome as error:
            self.unknown += 1
            jobs[:] = error.jobs
        else:
            return True
        return False

    def stop(self) -> list[str]:
        """The ids of all that was accepted."""
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the producer still waits for the store"
        return self.accepted


@pytest.fixture
def own_story(own_postgres: Server, tmp_path: Path) -> Iterator[Story]:
    """On a PostgreSQL server of its own, `own_postgres`."""
    story = Story(tmp_path, own_postgres.create_database())
    yield story
    story.close()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture(params=["sqlite", "postgres"])
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """On each store in turn."""
    names = {"sqlite": "sqlite_url", "postgres": "own_store_url"}
    story = Story(tmp_path, request.getfixturevalue(names[request.param]))
    yield story
    story.close()


# What the worker does by itself is the same on every store: on all of them when there is time.
whatever_the_store = pytest.mark.parametrize(
    "story",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
