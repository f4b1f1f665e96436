"""The fleet: ordinary workers in slots on executors."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock import App, Refused, State
from penstock.broker.position import BEGINNING
from penstock.spark.fleet.driver import Fleet
from penstock.spark.session_store import set_app_name
from tests.spark.cluster import Cluster
from tests.spark.drivers import workers_of
from tests.stories.conftest import eventually

TASKS = Path(__file__).with_name("fleet_tasks.py")
SOON = 100.0
JOBS = 800  # of a cluster; what is killed there is killed within 400


class Shop:
    """The tasks of fleet_tasks, enqueued from here and run elsewhere."""

    def __init__(self, url: str) -> None:
        self.app = App(url)

        @self.app.declare("nap")
        def nap(number: int, seconds: float = 0.02) -> int: ...

        @self.app.declare("where")
        def where(folder: str) -> str: ...

        self.nap, self.where = nap, where

    def succeeded(self) -> Counter[str]:
        """How often each job succeeded."""
        found: Counter[str] = Counter()
        after = BEGINNING
        while page := self.app.broker.history(after, 10_000):
            after = page[-1].position
            found.update(event.job for event in page if event.state is State.SUCCEEDED if event.job)
        return found

    def lapses(self) -> int:
        return sum(event.reason == "crashed" for event in self.app.broker.history(limit=100_000))


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    shop = Shop(store_url)
    yield shop
    shop.app.close()


@contextmanager
def at_work(fleet: Fleet) -> Iterator[list[int]]:
    """The fleet in a thread; its exit code is in the list once it has ended."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(fleet.run()), daemon=True)
    thread.start()
    try:
        yield codes
    finally:
        fleet.stop()
        thread.join(SOON)
        assert not thread.is_alive()


def connections_of(looker: psycopg.Connection[Any]) -> int:
    here = "select count(*) from pg_stat_activity where datname = current_database()"
    [count] = looker.execute(here).fetchone() or (0,)
    return count


def test_slots_drain_the_store_and_say_what_they_did(spark: Any, shop: Shop):
    shop.nap.enqueue_many([(number, 0.0) for number in range(500)])
    fleet = Fleet(spark, f"{TASKS}:app", 2, drain=True, lease=5.0)

    assert fleet.run() == 0

    assert set(shop.succeeded().values()) == {1}
    assert len(shop.succeeded()) == 500
    assert sum(fleet.settled.values()) == 500
    assert [end.ended for end in fleet.ends] == ["drained", "drained"]
    assert {end.slot for end in fleet.ends} == {0, 1}


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_slots_run_the_jobs_of_the_name_that_they_are_told(spark: Any, shop: Shop, store_url: str):
    media = App(store_url, name="media")

    @media.declare("nap")
    def nap(number: int, seconds: float = 0.02) -> int: ...

    nap.enqueue_many([(number, 0.0) for number in range(20)])
    shop.nap.enqueue(1)
    set_app_name(spark, "media")
    try:
        assert Fleet(spark, f"{TASKS}:app", 1, drain=True, lease=5.0).run() == 0
    finally:
        set_app_name(spark, "")  # the session is shared with other tests

    counts = {(count.app, count.ready) for count in shop.app.broker.count()}
    assert (len(shop.succeeded()), counts) == (20, {("", 1)})
    assert {event.app for event in shop.app.broker.history() if event.job} == {"media"}
    media.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_told_to_stop_slots_let_jobs_end_and_leave_the_rest(spark: Any, shop: Shop):
    shop.nap.enqueue_many([(number, 0.2) for number in range(2000)])
    fleet = Fleet(spark, f"{TASKS}:app", 2, threads=2, lease=5.0)

    with at_work(fleet) as codes:
        eventually(lambda: len(shop.succeeded()) >= 4, SOON)

    assert codes == [0]
    assert {end.ended for end in fleet.ends} == {"stopped"}
    assert shop.lapses() == 0
    [count] = shop.app.broker.count()
    assert (count.running, count.ready) == (0, 2000 - len(shop.succeeded()))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_fleet_ends_when_its_time_is_up(spark: Any, shop: Shop):
    shop.nap.enqueue(1)
    fleet = Fleet(spark, f"{TASKS}:app", 1, seconds=5.0, lease=5.0)

    assert fleet.run() == 0

    assert [end.ended for end in fleet.ends] == ["time"]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_thousand_slots_may_open_their_files(spark: Any, shop: Shop):
    """Issue 17: two in the driver for each, and the usual limit is 1,024 for all."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        Fleet(spark, f"{TASKS}:app", 1000)._channel.close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 2512
        with pytest.raises(Refused, match=r"need .* open files in the driver, and .* are allowed"):
            Fleet(spark, f"{TASKS}:app", before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# REQUIREMENTS S11
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_slots_have_the_connections_that_were_allowed(spark: Any, shop: Shop, store_url: str):
    """Issue 17: of two slots no more than eight, at work and idle."""
    with pytest.raises(Refused, match=r"12 connections to the store, and 8 are allowed: .* 2 slot"):
        Fleet(spark, f"{TASKS}:app", 3, connections=8)
    shop.nap.enqueue_many([(number, 0.01) for number in range(300)])
    fleet = Fleet(spark, f"{TASKS}:app", 2, lease=5.0, connections=8)
    counts: set[int] = set()
    with psycopg.connect(store_url, autocommit=True) as looker:
        own = connections_of(looker)
        with at_work(fleet):
            while len(shop.succeeded()) < 300:
                counts.add(connections_of(looker) - own)

    assert 4 <= max(counts) <= 8


# REQUIREMENTS S11
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_slot_killed_five_times_does_not_end_the_others(spark: Any, shop: Shop, tmp_path: Path):
    seen = tmp_path / "seen"
    seen.mkdir()
    fleet = Fleet(spark, f"{TASKS}:app", 2, threads=1, lease=3.0, grace=1.0)

    def supervisors() -> set[int]:
        shop.where.enqueue(str(seen))
        return {int(path.name) for path in seen.iterdir()}

    with at_work(fleet) as codes:
        eventually(lambda: len(supervisors()) == 2, SOON)
        spared = min(supervisors())
        killed: set[int] = set()
        for _ in range(5):
            victim = eventually(lambda: supervisors() - killed - {spared}, SOON).pop()
            killed.add(victim)
            os.kill(victim, signal.SIGKILL)
        assert shop.nap.enqueue(1).result(timeout=SOON) == 1
        os.kill(spared, 0)

    assert codes == [0]
    assert len(killed) == 5


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_target_that_executors_cannot_import_is_said_in_one_sentence(spark: Any, shop: Shop):
    fleet = Fleet(spark, "no_such_module:app", 1, drain=True)

    with pytest.raises(Refused, match="there is no module no_such_module"):
        fleet.run()


# REQUIREMENTS S10
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_killing_a_python_worker_an_executor_and_then_the_driver_of_a_cluster_loses_nothing(
    cluster: Cluster, shop: Shop, store_url: str, tmp_path: Path
):
    """On a real cluster, whose Python has no Penstock: all of it comes from the driver."""
    eventually(lambda: not cluster.executors(), 240, "those of other tests are gone")
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    shop.nap.enqueue_many([(number, 0.05) for number in range(JOBS)])
    place = shop.where.options(priority=9).enqueue(str(tmp_path))
    environment = {
        **os.environ,
        "PENSTOCK_URL": store_url,
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
    }
    command = [sys.executable, "-m", "penstock"]

    with (tmp_path / "fleet.log").open("wb") as log:
        fleet = subprocess.Popen(
            [
                *(*command, "spark-worker", f"{TASKS}:app", "--master", cluster.url),
                *("--slots", "2", "--threads", "1", "--lease", "3s", "--drain"),
                *("--config", "spark.executor.memory=512m", "--config", "spark.cores.max=2"),
            ],
            env={**environment, "PYSPARK_PYTHON": str(bare)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: len(shop.succeeded()) > 50, 240)
        executors = cluster.executors()
        for worker in workers_of(executors[0]):
            os.kill(worker, signal.SIGKILL)
        at_least = len(shop.succeeded()) + 50
        eventually(lambda: len(shop.succeeded()) > at_least, 240, "the rest goes on")
        os.kill(executors[0], signal.SIGKILL)
        at_least = len(shop.succeeded()) + 100
        eventually(lambda: len(shop.succeeded()) > at_least, 240, "the rest goes on")
        assert fleet.poll() is None
    finally:
        fleet.kill()
        fleet.wait()
        said = (tmp_path / "fleet.log").read_text()
    plain = [*command, "worker", f"{TASKS}:app", "--processes", "1", "--lease", "3s", "--drain"]
    subprocess.run(plain, env=environment, check=True, capture_output=True, timeout=240)

    assert len(executors) == 2
    assert len(shop.succeeded()) == JOBS + 1, said
    assert set(shop.succeeded().values()) == {1}
    assert str(Path(penstock.__file__).parent) not in place.result()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_ctrl_c_reaches_every_process_and_the_slots_drain(
    shop: Shop, store_url: str, tmp_path: Path
):
    """Issue 5: as a terminal sends it, to the command, its Java and whatever is under them."""
    shop.nap.enqueue_many([(number, 0.2) for number in range(2000)])
    command = [sys.executable, "-m", "penstock", "spark-worker", f"{TASKS}:app"]
    path = {"PENSTOCK_URL": store_url, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    with (tmp_path / "fleet.log").open("wb") as log:
        fleet = subprocess.Popen(
            [*command, "--slots", "1", "--threads", "2"],
            env={**os.environ, **path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: len(shop.succeeded()) >= 4, SOON)
        os.killpg(fleet.pid, signal.SIGINT)
        code = fleet.wait(SOON)
    finally:
        fleet.kill()
        fleet.wait()
    said = (tmp_path / "fleet.log").read_text()

    assert code == 0, said
    assert "ended after" in said
    assert shop.lapses() == 0
    [count] = shop.app.broker.count()
    assert (count.running, count.ready) == (0, 2000 - len(shop.succeeded()))
