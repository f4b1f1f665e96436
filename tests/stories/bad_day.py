"""A shop on FastAPI and SQLAlchemy, its back office on Django, and ten things that go wrong.

The project is in `bad_day_project`; what customers and an older release do is its plant.py. What
people and workers do is here. Only the URL says which store it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.broker.filter import Filter
from penstock.broker.gauge import last_gauges
from penstock.broker.protocol import Broker
from penstock.broker.views import by_queue
from penstock.brokers import open_broker
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind
from tests.stories.conftest import eventually

PROJECT = Path(__file__).with_name("bad_day_project")
OPERATED = "payments,mail,media,stock,thumbs,news,prices"
WAIT_SECONDS = 120.0


class Day:
    """The project's folder, its store, and the processes that run."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK")
        }
        self.environment = {
            **environment,
            "PENSTOCK_URL": url,
            "SHOP_GATE": str(folder / "gate"),
            "DJANGO_SETTINGS_MODULE": "office.settings",
        }
        self._workers: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> None:
        """A command in the project's folder, to its end."""
        subprocess.run(
            [sys.executable, *command], cwd=self.folder, env=self.environment, check=True
        )

    def work(self, queues: str, threads: int) -> None:
        """A worker of the shop in a process of its own."""
        log = (self.folder / f"worker-{len(self._workers)}.log").open("wb")
        words = ["-m", "penstock", "worker", "--processes", "1", "--queues", queues]
        with log:
            self._workers.append(
                subprocess.Popen(
                    [sys.executable, *words, "--threads", str(threads)],
                    cwd=self.folder,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                )
            )

    def close(self) -> None:
        (self.folder / "gate").touch()
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait(WAIT_SECONDS)


def went_wrong(broker: Broker) -> list[str]:
    """What has not gone wrong yet."""
    counts = {count.queue: count for count in by_queue(broker.count())}
    ended = broker.find(Filter(state=(State.FAILED, State.CANCELLED))).jobs
    gauge = last_gauges(broker.history(None, 1000, kind="gauge")).get("search")
    skipped = broker.history(None, 1000, kind="schedule")
    happened = {
        "charge": any(job.task.endswith(":charge") for job in ended),
        "thumbnail": any(job.reason == "crashed" for job in ended),
        "newsletter": any(job.reason == "unreadable" for job in ended),
        "hold": any(job.reason == "expired" for job in ended),
        "mail": "mail" in counts and counts["mail"].paused > 0,
        "media": "media" in counts and counts["media"].limited > 0,
        "stock": "stock" in counts and counts["stock"].scheduled > 0,
        "search": "search" in counts and counts["search"].running > 0 and gauge is not None,
        "reprice": any(b"overlap" in (row.data or b"") for row in skipped),
    }
    return [name for name, happens in happened.items() if not happens]


@contextmanager
def bad_day(folder: Path, url: str) -> Iterator[Day]:
    """The shop on its bad day, once everything has gone wrong; its workers run."""
    shutil.copytree(PROJECT, folder)
    day = Day(folder, url)
    day.run("plant.py")
    broker = open_broker(url)
    try:
        broker.put(Rule(RuleKind.PAUSE, "mail", None, "ada", "the provider is down"))
        broker.put(Rule(RuleKind.LIMIT, "media", None, "ada", "", running=1))
        day.work(OPERATED, threads=6)
        day.work("search", threads=1)
        eventually(lambda: not went_wrong(broker), 200, "ten things go wrong")
        yield day
    finally:
        broker.close()
        day.close()
