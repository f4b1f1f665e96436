"""A rolling deploy: workers and producers of two releases on one store, replaced one by one.

The releases are two folders: each has a Penstock with a version of its own and an app. The new app
sends orders that the old one cannot read, and has raised the version of one task.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

import penstock
from penstock import State
from penstock.app.version import RELEASE
from tests.stories.conftest import Story, eventually

Release = Literal["old", "new"]

APP = """
import os, sys, time
from penstock import App

app = App()


def note(word, order):
    line = f"{{word}} {release} {{order}}\\n".encode()
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)


@app.task(name="ship")
def ship(order: {orders}) -> str:
    note("ship", order)
    time.sleep(0.02)
    return "{release}"


@app.task(name="bill", version={version})
def bill(order: {orders}) -> str:
    note("bill", order)
    return "{release}"


if __name__ == "__main__":  # a producer, until it is ended
    number = 0
    while True:
        order = {order}
        jobs = [ship.job(order), bill.job(order)]
        app.enqueue(jobs)
        os.write(1, "".join(f"{{job.id}}\\n" for job in jobs).encode())
        number += 1
        time.sleep(0.05)
"""
FIELDS: dict[Release, dict[str, object]] = {
    "old": {"release": "old", "orders": "int", "order": "number", "version": 1},
    "new": {"release": "new", "orders": "int | str", "order": 'f"A-{number}"', "version": 2},
}
VERSIONS: dict[Release, str] = {"old": "0.0.8", "new": "0.0.9"}


def build(folder: Path, release: Release) -> Path:
    """A release as it is installed on a machine: Penstock, its version, and the app."""
    path = folder / release
    shutil.copytree(Path(penstock.__file__).parent, path / "penstock")
    version = path / "penstock/app/version.py"
    text = version.read_text()
    changed = text.replace(f'RELEASE = "{RELEASE}"', f'RELEASE = "{VERSIONS[release]}"')
    assert changed != text, "there is no RELEASE in version.py"
    version.write_text(changed)
    (path / "shop.py").write_text(APP.format(**FIELDS[release]))
    return path


class Producer:
    """A program of this release that enqueues until it is killed, and prints what was accepted."""

    def __init__(self, story: Story, path: Path) -> None:
        self._ids = story.folder / f"accepted-{path.name}"
        environment = {**story.environment(), "PYTHONPATH": str(path)}
        with self._ids.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(path / "shop.py")], env=environment, stdout=output
            )

    def accepted(self) -> list[str]:
        return self._ids.read_text().split()

    def stop(self) -> list[str]:
        assert self._process.poll() is None, "the producer ended by itself"
        self._process.kill()
        self._process.wait()
        return self.accepted()


def alive_releases(story: Story) -> Counter[str]:
    return Counter(row.penstock for row in story.broker.workers() if row.alive and row.claimed_at)


def put_back_unread(story: Story) -> list[str]:
    return [
        event.job or ""
        for event in story.attempts()
        if event.reason == "unreadable" and event.state is State.READY
    ]


def test_two_releases_side_by_side_lose_nothing_and_run_nothing_twice(story: Story):
    old, new = build(story.folder, "old"), build(story.folder, "new")
    options = {"target": "shop:app", "grace": 20.0, "lease": 5.0}
    fleets = [story.start(path=old, **options) for _ in range(2)]
    producers = [Producer(story, old)]
    try:
        eventually(lambda: alive_releases(story)[VERSIONS["old"]] == 2)
        eventually(lambda: len(story.ledger()) > 20)

        # Readers before writers: a worker that can read the new orders, then whoever sends them.
        story.start(path=new, **options)
        eventually(lambda: alive_releases(story)[VERSIONS["new"]] == 1)
        producers.append(Producer(story, new))
        eventually(lambda: put_back_unread(story))

        for fleet, stays in zip(fleets, (1, 0), strict=True):
            fleet.signal(signal.SIGTERM)
            assert fleet.wait() == 0, fleet.output()
            eventually(lambda stays=stays: alive_releases(story)[VERSIONS["old"]] == stays)
            story.start(path=new, **options)
        eventually(lambda: alive_releases(story) == {VERSIONS["new"]: 3})
        before = [len(producer.accepted()) for producer in producers]
        for producer, count in zip(producers, before, strict=True):
            eventually(lambda producer=producer, count=count: len(producer.accepted()) > count)
    finally:
        ids = [job_id for producer in producers for job_id in producer.stop()]

    # The last enqueue of a producer may be stored and not printed.
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0)
    jobs = {job_id: story.broker.get(job_id) for job_id in ids}
    assert {job.state for job in jobs.values()} == {State.SUCCEEDED}
    assert {(job.failures, job.lapses) for job in jobs.values()} == {(0, 0)}
    assert set(story.successes().values()) == {1}

    runs = Counter((word, order) for word, _, order in story.ledger())
    assert set(runs.values()) == {1}, "an order was handled twice"
    by = {(word, order): release for word, release, order in story.ledger()}
    assert {release for (_, order), release in by.items() if order.startswith("A-")} == {"new"}
    assert {release for (_, order), release in by.items() if order.isdigit()} == {"old", "new"}
    unread = put_back_unread(story)
    assert {jobs[job_id].task for job_id in unread if job_id in jobs} == {"ship"}, "see version="
    assert all(story.successes()[job_id] == 1 for job_id in unread)
