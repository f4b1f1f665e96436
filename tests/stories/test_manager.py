"""A manager under load: killed, frozen, restarted, cut off; workers and receivers killed.

After each the history is checked: what was accepted has ended once, and nothing is settled twice.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import App
from penstock.brokers.sqlite import SqliteBroker
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import Job
from penstock.testing.checker import check_store
from tests.stories.proxy import Proxy

TASKS = """
import time
from penstock import App

app = App()

@app.task(name="story:add")
def add(a: int, b: int) -> int:
    time.sleep(0.002)
    return a + b
"""
JOBS = 2000


class Fleet:
    """A store, a manager of it at a fixed port, and workers that know the manager alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "fleet.py").write_text(TASKS)
        self._log = (folder / "log").open("ab")
        self.store = SqliteBroker(folder / "jobs.db")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.accepted: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.manager = self.start_manager()

    @property
    def url(self) -> str:
        return f"penstock://127.0.0.1:{self.port}"

    def start(self, *words: str, url: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            cwd=self.folder,
            env={**os.environ, "PENSTOCK_URL": url, "TMPDIR": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.processes.append(process)
        return process

    def start_manager(self) -> subprocess.Popen[bytes]:
        listen = f"127.0.0.1:{self.port}"
        manager = self.start("manager", "--listen", listen, url=f"sqlite:///{self.folder}/jobs.db")
        assert manager.stdout is not None
        assert manager.stdout.readline().startswith(b"manager: "), self.log()
        return manager

    def start_worker(self, url: str | None = None) -> subprocess.Popen[bytes]:
        return self.start("worker", "fleet", url=url or self.url)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def ended(self) -> int:
        return sum(self.check().succeeded.values())

    def check(self):
        return check_store(self.store, accepted=self.accepted)

    def until_ended(self, share: float = 1.0) -> None:
        until(lambda: self.ended() >= len(self.accepted) * share, self.log)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
        self._log.close()
        self.store.close()


def until(look: Callable[[], object], says: Callable[[], str], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, says()[-4000:]
        time.sleep(0.2)


@pytest.fixture
def fleet(tmp_path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    verdict = fleet.check()
    fleet.close()
    assert verdict.ok, verdict


def declared(app: App):
    @app.declare("story:add")
    def add(a: int, b: int) -> int: ...

    return add


def enqueue(fleet: Fleet, number: int = JOBS) -> None:
    """Through the manager, a few at a time, and again after an answer that was lost."""
    app = App(fleet.url)
    add = declared(app)
    left = [add.job(a=each, b=1) for each in range(number)]
    while left:
        some = left[:50]
        try:
            app.enqueue(some)
        except (StoreUnreachable, UnknownOutcome):
            time.sleep(0.1)
            continue
        fleet.accepted += [job.id for job in some]
        del left[:50]
    app.close()


def test_a_manager_is_killed_and_started_again_and_again(fleet):
    fleet.start_worker()
    enqueue(fleet, JOBS // 2)
    for share in (0.2, 0.5):
        fleet.until_ended(share)
        fleet.manager.kill()
        fleet.manager.wait(60)
        fleet.manager = fleet.start_manager()
        enqueue(fleet, JOBS // 4)

    fleet.until_ended()

    verdict = fleet.check()
    assert verdict.ok, verdict
    assert verdict.seen["lapses"] == 0  # an absence shorter than a lease loses nothing


def test_a_manager_stands_still_for_longer_than_a_lease(fleet):
    fleet.start_worker()
    enqueue(fleet)
    fleet.until_ended(0.2)

    fleet.manager.send_signal(signal.SIGSTOP)
    time.sleep(20)
    fleet.manager.send_signal(signal.SIGCONT)

    fleet.until_ended()


def test_a_worker_is_killed(fleet):
    fleet.start_worker()
    doomed = fleet.start_worker()
    enqueue(fleet)
    fleet.until_ended(0.2)

    doomed.kill()

    fleet.until_ended()


def test_the_network_is_cut_again_and_again(fleet):
    with Proxy(fleet.url) as proxy:
        fleet.start_worker(proxy.url.replace("//@", "//"))
        enqueue(fleet)
        for _ in range(8):
            time.sleep(0.3)
            proxy.hang_up_all()
        proxy.cut_at_random(0.02, seed=62)
        time.sleep(3)
        proxy.heal()

        fleet.until_ended()


def test_a_producer_that_is_told_that_it_is_not_known_sends_again(fleet):
    with Proxy(fleet.url) as proxy:
        app = App(proxy.url.replace("//@", "//"))
        proxy.cut_at_random(0.2, seed=9)
        add = declared(app)
        jobs: list[Job] = [add.job(a=each, b=1) for each in range(100)]
        for job in jobs:
            while True:
                try:
                    app.enqueue([job])
                    break
                except (StoreUnreachable, UnknownOutcome):
                    time.sleep(0.02)
        app.close()
    fleet.accepted += [job.id for job in jobs]
    fleet.start_worker()

    fleet.until_ended()

    assert fleet.check().succeeded["story:add"] == 100
