"""A worker whose store is lost, slow or unwilling, in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from penstock import App, State, current_job
from penstock.broker.values import Claimed, Renewed, Settlement, Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.memory import MemoryBroker
from penstock.errors import MissingRight, Refused, StoreUnreachable
from penstock.job import Job, Outcome
from penstock.testing.clock import Clock
from penstock.worker import Worker
from penstock.worker.claim_plan import ClaimRequest, RequestKind
from penstock.worker.health import Health
from penstock.worker.outage_log import OutageLog
from penstock.worker.store_calls import StoreCalls
from tests.workers import SOON, attempts, drain, until, working


@pytest.fixture
def app() -> Iterator[App]:
    """An app on a memory broker, with the machine's own clock."""
    app = App(broker=MemoryBroker())
    yield app
    app.close()


class Shaky(MemoryBroker):
    """A store that can be unplugged, before or after it did what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.unplugged = False
        self.lose_answers = 0
        self.calls = 0

    def _work(self) -> None:
        self.calls += 1
        if self.unplugged:
            raise StoreUnreachable("nobody answers")

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        self._work()
        for _, outcome in pairs:
            if outcome.result == b'"cursed"':
                raise ValueError("this result cannot be stored")
        return super().settle(pairs)

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        self._work()
        answer = super().claim(wanted, settlements)
        if self.lose_answers and (settlements or any(answer.jobs)):
            self.lose_answers -= 1
            raise StoreUnreachable("the answer was lost")
        return answer

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        self._work()
        return super().renew(workers, holding)

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        self._work()
        return super().wait(queues, timeout)


def test_losing_the_store_loses_nothing(caplog):
    broker = Shaky()
    app = App(broker=broker)
    started, release = threading.Event(), threading.Event()

    @app.task
    def work(n: int) -> int:
        started.set()
        release.wait(SOON)
        return n

    handles = app.enqueue([work.job(n) for n in range(8)])

    with caplog.at_level(logging.ERROR), working(app, threads=4) as worker:
        assert started.wait(SOON)
        broker.unplugged = True
        release.set()
        calls, patient = broker.calls, threading.Event()
        while broker.calls < calls + 4:
            patient.wait(0.02)
        broker.unplugged = False
        assert [handle.result(timeout=SOON) for handle in handles] == list(range(8))

    assert all(len(attempts(app, handle.id)) == 1 for handle in handles)
    assert worker.stale == 0
    assert caplog.text.count("does not answer") == 1


class Guarded(Shaky):
    """A store whose login lacks a right to call these verbs."""

    def __init__(self, *lacking: str) -> None:
        super().__init__()
        self.lacking = set(lacking)

    def _work(self, verb: str = "") -> None:
        super()._work()
        if verb in self.lacking:
            raise MissingRight(f"this login may not {verb}")

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        self._work("settle")
        return super().settle(pairs)

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        self._work("claim")
        if settlements:
            self._work("settle")
        return super().claim(wanted, settlements)

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        self._work("renew")
        return super().renew(workers, holding)


@pytest.mark.parametrize("verb", ["claim", "renew"])
def test_a_worker_whose_login_may_not_work_ends_and_says_so(verb):
    app = App(broker=Guarded(verb))

    @app.task
    def work() -> None: ...

    work.enqueue()

    with pytest.raises(MissingRight, match=f"may not {verb}"):
        Worker(app, threads=1).work()


def test_a_right_that_is_lost_later_is_waited_for_and_no_outcome_is_lost():
    broker = Guarded()
    app = App(broker=broker)
    started, release = threading.Event(), threading.Event()

    @app.task
    def work(n: int) -> int:
        started.set()
        release.wait(SOON)
        return n

    handles = [work.enqueue(n) for n in range(2)]

    with working(app, threads=1):
        assert started.wait(SOON)
        broker.lacking = {"claim", "settle"}
        release.set()
        calls, patient = broker.calls, threading.Event()
        while broker.calls < calls + 5:
            patient.wait(0.02)
        broker.lacking = set()
        assert [handle.result(timeout=SOON) for handle in handles] == [0, 1]

    assert all(len(attempts(app, handle.id)) == 1 for handle in handles)


def test_a_store_that_refuses_is_not_said_to_be_away(caplog):
    OutageLog("trying again").log(Refused("this login lacks a privilege"))

    assert "the store refuses this process: Refused: this login lacks" in caplog.text


def test_an_outcome_that_comes_too_late_is_counted_in_the_worker_s_row():
    app = App(broker=Shaky())

    @app.task
    def work() -> int:
        if current_job().attempt == 1:
            [row] = app.broker.workers()
            app.broker.recover(dead=row.id, started=[current_job().id])
        return current_job().attempt

    handle = work.enqueue()

    worker = drain(app)

    assert handle.result(timeout=0) == 2
    assert worker.stale == worker.row.stale == 1


def test_a_claim_whose_answer_was_lost_strands_nothing():
    broker = Shaky()
    broker.lose_answers = 2
    app = App(broker=broker)

    @app.task
    def work(n: int) -> int:
        return n

    handles = app.enqueue([work.job(n) for n in range(20)])

    worker = drain(app)

    assert [handle.result(timeout=0) for handle in handles] == list(range(20))
    assert worker.stale == 0


class Late(Shaky):
    """A store that carries out its first claim after all, when nobody waits for it any more."""

    def __init__(self) -> None:
        super().__init__()
        self._due: Sequence[Wanted] | None = None
        self.late = 0

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        if not self.late and self._due is None:
            self._due = wanted
            raise StoreUnreachable("no answer in time")
        return super().claim(wanted, settlements)

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        renewed = super().renew(workers, holding)
        if self._due is not None and holding is not None:
            due, self._due = self._due, None
            self.late = sum(len(handed) for handed in MemoryBroker.claim(self, due).jobs)
        return renewed


def test_a_claim_that_is_carried_out_after_it_was_given_up_strands_nothing():
    broker = Late()
    app = App(broker=broker)

    @app.task
    def work(n: int) -> int:
        return n

    handles = app.enqueue([work.job(n) for n in range(3)])

    with working(app, lease=0.3):
        assert [handle.result(timeout=SOON) for handle in handles] == [0, 1, 2]

    assert broker.late == 3
    assert [len(attempts(app, handle.id)) for handle in handles] == [1, 1, 1]


def test_every_trouble_begins_with_a_short_pause():
    broker = Shaky()
    line = StoreCalls(broker, Health(broker.clock))
    request, row = ClaimRequest(RequestKind("hands"), 1, None), WorkerRow(id="worker-1")
    pauses: list[float] = []
    for _ in range(5):
        broker.unplugged = True
        assert line.exchange([], row, None, request) is None
        pauses.append(line.retry_at - time.monotonic())
        broker.unplugged = False
        assert line.renew(row, set()) is not None
        assert line.exchange([], row, None, request) == []

    assert max(pauses) <= 0.1


class Barren(MemoryBroker):
    """A store that answers everything but claims."""

    def claim(self, *args: Any, **kwargs: Any) -> Any:
        raise StoreUnreachable("not this")


def test_renewals_alone_do_not_keep_it_green():
    app = App(broker=Barren())

    @app.task
    def work() -> None: ...

    with working(app, lease=0.1) as worker:
        worker.health.red_after = 0.3
        until(app.broker, lambda: not worker.health.green)


def test_one_outcome_that_cannot_be_stored_fails_alone():
    app = App(broker=Shaky())

    @app.task
    def work(text: str) -> str:
        return text

    good, cursed, fine = app.enqueue([work.job(text) for text in ("good", "cursed", "fine")])

    drain(app)

    assert (good.result(timeout=0), fine.result(timeout=0)) == ("good", "fine")
    assert attempts(app, cursed.id) == [(State.FAILED, "unstorable")]


def test_health_turns_red_when_the_store_is_silent(clock: Clock):
    app = App(broker=MemoryBroker(clock))

    worker = Worker(app)
    assert worker.health.ready

    clock.advance(seconds=31)
    assert not worker.health.green

    worker.health.claimed()
    assert worker.health.green
