"""Pause and block, with a real worker at full speed. D31 to D37, D57, D58."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest

from penstock import App, State
from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, claim, some_jobs
from tests.stories.conftest import eventually
from tests.stories.suspend import suspend

PROGRAM = Path(__file__).parent / "programs" / "starts.py"
PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK


class Start(NamedTuple):
    n: int
    at: float


class Ticks:
    """A worker process, what it has started, and the store that it works on."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.broker = open_broker(url)
        self._ledger = folder / "ledger"
        self._ledger.touch()
        self._process = subprocess.Popen([sys.executable, PROGRAM, self.url, self._ledger])
        self.app = App(self.url)

        @self.app.task(name="tick", queue="ticks")
        def tick(n: int) -> None: ...

        @self.app.task(name="tick_async", queue="ticks")
        async def tick_async(n: int) -> None: ...

        @self.app.task(name="slow", queue="ticks")
        def slow(n: int) -> None: ...

        self._numbers = itertools.count()
        self.enqueue("tick", 1)
        self.until(lambda: len(self.starts()) == 1)

    def enqueue(self, task: str, count: int) -> None:
        rows = [(number,) for number in itertools.islice(self._numbers, count)]
        self.app.tasks[task].enqueue_many(rows)

    def starts(self) -> list[Start]:
        whole = self._ledger.read_text().rpartition("\n")[0]
        return [Start(int(n), float(at)) for n, at in (line.split() for line in whole.splitlines())]

    def until(self, seen: Callable[[], bool], timeout: float = 100) -> None:
        deadline = time.monotonic() + timeout
        while not seen():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.005)

    def left(self) -> int:
        return sum(count.total for count in self.broker.count())

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(30) == 0
        finally:
            if self._process.poll() is None:
                os.kill(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self.broker.close()
            self.app.close()


@pytest.fixture(params=["sqlite", "postgres"])
def ticks(request, tmp_path) -> Iterator[Ticks]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    ticks = Ticks(url, tmp_path)
    yield ticks
    ticks.close()


def pause_again_and_again(ticks: Ticks, task: str, rounds: int) -> None:
    """Pause a busy worker, wait, resume; then see what started in between."""
    windows: list[tuple[float, float]] = []
    for turn in range(rounds):
        ticks.enqueue(task, 2000)
        time.sleep(0.01 + 0.003 * (turn % 7))
        ticks.broker.put(Rule(PAUSE, queue="ticks"))
        returned = time.time()
        time.sleep(0.05)
        windows.append((returned, time.time()))
        assert ticks.broker.clear(Rule, rule_id(PAUSE, queue="ticks"))
    ticks.until(lambda: ticks.left() == 0)

    starts = ticks.starts()
    late = [
        start.at - returned
        for start in starts
        for returned, resumed in windows
        if returned < start.at < resumed
    ]
    assert sorted(start.n for start in starts) == list(range(2000 * rounds + 1))
    # Two processes know the time of a server to half a round trip: at both ends of a pause.
    tolerance = 0.02 if ticks.url.startswith("postgresql") else 0.0
    surely = [(returned + tolerance, resumed - tolerance) for returned, resumed in windows]
    assert recorded(ticks.broker, surely, {start.n: start.at for start in starts}) == []
    # Its first line is another matter. On a machine with too much to do, the one thread that
    # is past the gate may be kept from it longer than set_rule waits (measured: once in 25 pauses
    # beside three busy loops on two cores, once in 200 without). More than one a pause is a hole.
    assert len(late) <= rounds, late


def recorded(
    broker: Broker, windows: list[tuple[float, float]], called: dict[int, float]
) -> list[float]:
    """The starts on record that fall between the return of a pause and its end.

    But those of calls that were made after it: the record is taken first, and a thread that is kept
    waiting until the pause is over finds, when it looks, that it may go on.
    """
    late: list[float] = []
    position = BEGINNING
    while page := broker.history(position, 10_000):
        position = page[-1].position
        late += [
            event.started_at - returned
            for event in page
            for returned, resumed in windows
            if event.started_at is not None
            and returned < event.started_at < resumed
            and called[msgspec.json.decode(event.body or b"")["args"]["n"]] < resumed
        ]
    return late


@pytest.mark.parametrize("task", ["tick", "tick_async"])
def test_nothing_starts_after_a_pause_returned(ticks, task):
    pause_again_and_again(ticks, task, rounds=8)


@pytest.mark.soak
@pytest.mark.parametrize("task", ["tick", "tick_async"])
def test_nothing_starts_after_a_pause_returned_for_long(ticks, task):
    pause_again_and_again(ticks, task, rounds=200)


def test_a_job_that_runs_goes_on_and_the_next_does_not_start(ticks):
    """D31."""
    ticks.enqueue("slow", 30)
    ticks.until(lambda: len(ticks.starts()) > 1)

    ticks.broker.put(Rule(PAUSE, task="slow"))
    started = len(ticks.starts())
    ticks.until(lambda: sum(count.running for count in ticks.broker.count()) == 0)

    assert len(ticks.starts()) == started
    assert 0 < started - 1 < 30
    ended = ticks.broker.find(Filter(state=(State.SUCCEEDED,), task=("slow",)))
    assert len(ended.jobs) == started - 1
    [count] = ticks.broker.count()
    assert count.paused == 31 - started


def test_a_pause_does_not_wait_for_a_worker_that_stands_still(ticks):
    """It would be acknowledged by all but that one; what that one has claimed is put back later."""
    ticks.enqueue("slow", 30)
    ticks.until(lambda: len(ticks.starts()) > 1)
    suspend([ticks._process.pid], ticks.url)
    try:
        began = time.monotonic()
        ticks.broker.put(Rule(PAUSE, task="slow"))
        took = time.monotonic() - began
    finally:
        os.kill(ticks._process.pid, signal.SIGCONT)

    assert took < 10
    ticks.until(lambda: sum(count.running for count in ticks.broker.count()) == 0)
    [count] = ticks.broker.count()
    assert count.paused > 0


def test_a_pause_waits_for_a_claim_that_is_under_way(postgres_broker, postgres_store_url, clock):
    """Else that claim, which has read the rules, would hand out jobs after the pause returned."""
    broker = postgres_broker
    broker.enqueue(some_jobs(clock, 3))
    claimed: list[Any] = []
    claiming = threading.Thread(target=lambda: claimed.extend(claim(broker, 2)))
    pausing = threading.Thread(target=lambda: broker.put(Rule(PAUSE, queue="default")))
    with (
        psycopg.connect(postgres_store_url) as blocker,
        psycopg.connect(postgres_store_url, autocommit=True) as looker,
    ):
        blocker.execute("lock table penstock.lease in share mode")  # the claim has to wait there

        def waiting() -> int:
            row = looker.execute("select count(*) from pg_locks where not granted").fetchone()
            return row[0] if row else 0

        claiming.start()
        eventually(lambda: waiting() == 1)
        pausing.start()
        eventually(lambda: waiting() == 2 or not pausing.is_alive())
        assert pausing.is_alive()
        blocker.rollback()
    claiming.join()
    pausing.join()

    assert len(claimed) == 2
    assert claim(broker, 2, worker="worker-2") == []


def test_1500_jobs_enqueued_while_paused_all_run_and_once(ticks):
    """D33, D34, D49: nothing is left behind by a limit on how many are resumed."""
    ticks.broker.put(Rule(PAUSE, queue="ticks"))
    before = len(ticks.starts())
    ticks.enqueue("tick", 1500)
    time.sleep(0.2)
    assert len(ticks.starts()) == before
    assert ticks.left() == 1500

    ticks.broker.clear(Rule, rule_id(PAUSE, queue="ticks"))
    ticks.until(lambda: ticks.left() == 0)

    assert sorted(start.n for start in ticks.starts()) == list(range(1501))


def test_nine_resumes_in_a_row_and_nine_at_once_make_one_run_each(ticks):
    """D35."""
    for at_once in (False, True):
        ticks.broker.put(Rule(PAUSE, queue="ticks"))
        ticks.enqueue("tick", 500)

        resumes = [
            threading.Thread(target=ticks.broker.clear, args=(Rule, rule_id(PAUSE, "ticks")))
            for _ in range(9)
        ]
        for thread in resumes:
            thread.start()
            if not at_once:
                thread.join()
        for thread in resumes:
            thread.join()
        ticks.until(lambda: ticks.left() == 0)

    numbers = [start.n for start in ticks.starts()]
    assert sorted(numbers) == list(range(1001))


def test_quick_pauses_and_resumes_from_many_sides_lose_and_double_nothing(ticks):
    ticks.enqueue("tick", 3000)

    def flip() -> None:
        for _ in range(15):
            ticks.broker.put(Rule(PAUSE, queue="ticks"))
            ticks.broker.clear(Rule, rule_id(PAUSE, queue="ticks"))

    threads = [threading.Thread(target=flip) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ticks.until(lambda: ticks.left() == 0)

    assert sorted(start.n for start in ticks.starts()) == list(range(3001))


def test_a_pause_longer_than_any_retention_loses_nothing(broker, clock):
    """D37."""
    broker.put(Rule(PAUSE, task="mail:send"))
    jobs = some_jobs(clock, 20)
    broker.enqueue(jobs)

    clock.advance(days=30)
    broker.prune(clock.now() - 14 * 86400)
    assert claim(broker, 100) == []
    broker.clear(Rule, rule_id(PAUSE, task="mail:send"))

    assert {job.id for job in claim(broker, 100)} == {job.id for job in jobs}


def test_resuming_what_is_empty_or_was_never_paused_is_no_error(broker, clock):
    """D50."""
    assert broker.clear(Rule, rule_id(PAUSE, queue="nothing here")) is False
    broker.put(Rule(PAUSE, queue="empty"))

    assert broker.clear(Rule, rule_id(PAUSE, queue="empty")) is True


@pytest.mark.parametrize("order", [("pause", "block"), ("block", "pause")])
@pytest.mark.parametrize("removed", ["pause", "block"])
def test_block_wins_and_removing_one_leaves_the_other(broker, clock, order, removed):
    """D57, in all four orders."""
    broker.enqueue([a_job(clock)])
    for kind in order:
        broker.put(Rule(RuleKind(kind), task="mail:send"))

    broker.clear(Rule, rule_id(RuleKind(removed), task="mail:send"))
    assert claim(broker) == []
    other = ({"pause", "block"} - {removed}).pop()
    broker.clear(Rule, rule_id(RuleKind(other), task="mail:send"))

    assert len(claim(broker)) == 1


def test_a_pause_set_twice_is_taken_back_once(broker, clock):
    """D58."""
    broker.enqueue([a_job(clock)])
    for _ in range(2):
        broker.put(Rule(PAUSE, task="mail:send"))
    assert len(broker.records(Rule)) == 1

    broker.clear(Rule, rule_id(PAUSE, task="mail:send"))

    assert len(claim(broker)) == 1
