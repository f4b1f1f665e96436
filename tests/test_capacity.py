"""Numbers of a worker that are changed while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from penstock import App
from penstock.broker.worker_settings import WorkerSettings
from penstock.brokers.memory import MemoryBroker
from penstock.errors import StoreUnreachable
from penstock.worker.capacity import Capacity, LiveSettings
from tests.workers import until, working

OWN = Capacity(10, 100)


@pytest.fixture
def app() -> Iterator[App]:
    app = App(broker=MemoryBroker())
    yield app
    app.close()


def running(app: App) -> int:
    return sum(count.running for count in app.broker.count())


def test_threads_are_added_and_taken_away_while_jobs_run(app: App):
    gate, at_once = threading.Semaphore(0), [0, 0]
    counting = threading.Lock()

    @app.task
    def hold() -> None:
        with counting:
            at_once[0] += 1
            at_once[1] = max(at_once)
        gate.acquire(timeout=60)
        with counting:
            at_once[0] -= 1

    app.enqueue([hold.job() for _ in range(12)])
    with working(app, threads=1) as worker:
        until(app.broker, lambda: at_once[0] == 1)
        worker.change(Capacity(4, 100))
        until(app.broker, lambda: at_once[0] == 4)
        assert worker.row.threads == 4

        worker.change(Capacity(2, 100))
        for _ in range(4):  # what ran goes on, and ends
            gate.release()
        until(app.broker, lambda: at_once[0] == 2 and len(worker._pool._hands.hands) == 2)
        at_once[1] = 0
        for _ in range(3):
            gate.release()
        until(app.broker, lambda: running(app) + sum(c.ready for c in app.broker.count()) == 5)
        assert at_once[1] <= 2

        worker.change(Capacity(3, 100))  # the slots of those that ended are used again
        until(app.broker, lambda: at_once[0] == 3)
        for _ in range(12):
            gate.release()
        until(app.broker, lambda: not app.broker.count())


def test_async_slots_are_added_and_taken_away(app: App):
    most, now, go = [0], [0], threading.Event()

    @app.task
    async def hold() -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await asyncio.to_thread(go.wait, 60)
        now[0] -= 1

    app.enqueue([hold.job() for _ in range(6)])
    with working(app, async_slots=1) as worker:
        until(app.broker, lambda: now[0] == 1)
        worker.change(Capacity(10, 4))
        until(app.broker, lambda: now[0] == 4)
        worker.change(Capacity(10, 1))
        until(app.broker, lambda: worker.row.async_slots == 1)
        go.set()
        until(app.broker, lambda: not app.broker.count())
        assert most[0] == 4
        until(app.broker, lambda: worker._pool._async_hands._in_use == 1)

        go.clear()
        most[0] = 0
        app.enqueue([hold.job() for _ in range(3)])
        until(app.broker, lambda: now[0] == 1)
        go.set()
        until(app.broker, lambda: not app.broker.count())
        assert most[0] == 1


def test_quiet_claims_nothing_and_finishes_what_runs(app: App):
    go = threading.Event()

    @app.task
    def hold() -> None:
        go.wait(60)

    first = hold.enqueue()
    with working(app, threads=2) as worker:
        until(app.broker, lambda: running(app) == 1)
        worker.change(Capacity(2, 100, quiet=True))
        until(app.broker, lambda: worker.row.quiet)
        second = hold.enqueue()
        go.set()
        until(app.broker, lambda: first.state() == "succeeded")
        assert second.state() == "ready"

        worker.change(Capacity(2, 100))
        until(app.broker, lambda: second.state() == "succeeded")


def live(broker: MemoryBroker, *, named: bool = True, **processes: int) -> LiveSettings:
    numbers = {(queue,): number for queue, number in processes.items()} or {None: 2}
    made = LiveSettings("mail-1", OWN, numbers, named=named)
    made.began_at = broker.clock.now()
    return made


def test_a_supervisor_takes_over_what_is_in_the_store():
    broker = MemoryBroker()
    settings = live(broker)
    settings.refresh(broker, broker.traits.rules_version())
    assert not settings.apply()
    assert (settings.capacity, settings.missing([])) == (OWN, [None, None])

    broker.put(WorkerSettings(worker="other", threads=1))
    broker.put(WorkerSettings(worker="mail-1", threads=20, processes=3))
    settings._read_at = 0.0
    settings.refresh(broker, broker.traits.rules_version())
    assert not settings.apply()
    assert settings.capacity == Capacity(20, 100)
    assert settings.missing([None, None]) == [None]
    assert settings.surplus([None] * 5) == {None: 2}

    broker.clear(WorkerSettings, "mail-1")
    settings._read_at = 0.0
    settings.refresh(broker, broker.traits.rules_version())
    settings.apply()
    assert (settings.capacity, settings.missing([None])) == (OWN, [None])


def test_numbers_of_queues_are_changed_one_by_one():
    broker = MemoryBroker()
    settings = live(broker, mail=1, images=2)

    broker.put(WorkerSettings(worker="mail-1", queues={"mail": 2, "images": 0, "new": 1}))
    settings.refresh(broker, broker.traits.rules_version())
    settings.apply()

    assert settings.missing([("mail",)]) == [("mail",), ("new",)]
    assert settings.surplus([("mail",), ("images",)]) == {("images",): 1}


@pytest.mark.parametrize("named", [True, False])
def test_what_was_set_before_its_start_holds_for_a_worker_with_a_name(named):
    broker = MemoryBroker()
    broker.put(WorkerSettings(worker="mail-1", threads=20, stop=True))
    settings = live(broker, named=named)

    settings.refresh(broker, broker.traits.rules_version())

    assert not settings.apply()  # the stop was for those that ran then
    assert settings.capacity.threads == (20 if named else 10)


def test_a_stop_stops_once():
    broker = MemoryBroker()
    settings = live(broker)
    broker.put(WorkerSettings(worker="mail-1", stop=True))
    settings.refresh(broker, broker.traits.rules_version())

    assert settings.apply()
    assert not settings.apply()


def test_a_store_that_is_away_changes_nothing():
    class Away(MemoryBroker):
        def records(self, kind):
            raise StoreUnreachable("nobody answers")

    broker = MemoryBroker()
    settings = live(broker)
    broker.put(WorkerSettings(worker="mail-1", threads=20))
    settings.refresh(broker, broker.traits.rules_version())
    settings.apply()

    settings._read_at = 0.0
    settings._version = None
    with pytest.raises(StoreUnreachable):
        settings.refresh(Away(), 7)
    assert not settings.apply()
    assert settings.capacity.threads == 20


def test_drained_children_are_not_started_again():
    settings = live(MemoryBroker(), mail=1, images=1)

    settings.drained(("mail",))
    assert settings.missing([]) == [("images",)]
    assert not settings.all_drained
    settings.drained(("images",))
    assert settings.all_drained
