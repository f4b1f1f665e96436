"""Put-backs: what a worker claimed and gave back is counted, by queue and reason."""

from __future__ import annotations

import threading

import pytest

from penstock import App, RetryLater, current_job
from penstock.broker.filter import Filter
from penstock.brokers.memory import MemoryBroker
from penstock.job import Job, Outcome, State, failed, lapsed, put_back, succeeded, try_again
from penstock.operate.reasons import PUT_BACK, ReasonCount, read_reasons
from penstock.testing.conformance.factories import a_worker, begun, claim, settle, some_jobs
from penstock.worker.put_backs import MOST_BYTES, MOST_PAIRS, OTHER, PutBacks, encoded
from penstock.worker.running_slots import RunningSlots
from tests.workers import until, working

MAIL = Job(task="mail:send", queue="mail")


def test_only_what_goes_back_uncounted_is_a_put_back():
    counts = PutBacks()

    counts.count([(MAIL, succeeded()), (MAIL, try_again("x", 1.0)), (MAIL, lapsed())])
    counts.count([(MAIL, Outcome(State.READY, "repeat", repeats=1))])
    assert counts.by_queue == {}

    counts.count([(MAIL, put_back("paused"))] * 2 + [(MAIL, put_back("shutdown"))])
    assert counts.by_queue == {"mail": {"paused": 2, "shutdown": 1}}


def test_the_number_of_pairs_is_bounded():
    counts = PutBacks()

    for number in range(MOST_PAIRS + 5):
        counts.count([(Job(task="t", queue=f"q{number}"), put_back("paused"))])

    assert sum(sum(reasons.values()) for reasons in counts.by_queue.values()) == MOST_PAIRS + 5
    assert counts.by_queue[OTHER] == {OTHER: 5}


def test_the_supervisor_reads_what_its_child_counted():
    ours = RunningSlots.make(3)
    theirs = RunningSlots(3, ours.descriptor)

    assert theirs.put_backs() == {}
    ours.publish_put_backs({"mail": {"paused": 2}})
    assert theirs.put_backs() == {"mail": {"paused": 2}}
    assert theirs.held() == []  # nothing of it is taken for a job
    ours._memory[-MOST_BYTES:] = b'{"mail"'.ljust(MOST_BYTES, b"\0")  # half written
    assert theirs.put_backs() == {"mail": {"paused": 2}}
    theirs.descriptor = None
    theirs.close()
    ours.close()
    assert ours.put_backs() == {"mail": {"paused": 2}}  # the heartbeat may still ask for it


def test_names_that_do_not_fit_are_added_up():
    wide = {f"{number:0>60}" + "\N{PILE OF POO}" * 4: {"paused": 1} for number in range(60)}

    assert encoded(wide) == b'{"other":{"paused":60}}'


@pytest.fixture
def app():
    app = App(broker=MemoryBroker())
    yield app
    app.close()


def test_a_worker_tells_what_it_put_back_and_why(app: App):
    started, go_on = threading.Event(), threading.Event()

    @app.task(queue="mail")
    def later() -> None:
        if current_job().attempt == 1:
            raise RetryLater(after=0)
        started.set()
        go_on.wait(30)

    later.enqueue()
    with working(app, threads=1) as worker:
        assert started.wait(30)
        assert worker.row.put_back == {"mail": {"later": 1}}
        until(
            app.broker,
            lambda: {"mail": {"later": 1}} in [row.put_back for row in app.broker.workers()],
        )
        go_on.set()


def test_reasons_are_read_from_the_history_and_from_workers(broker, clock):
    broker.enqueue(some_jobs(clock, 4))
    outcomes = [succeeded(), failed("no"), try_again("x", clock.now(), "timeout")]
    for job, outcome in zip(claim(broker, limit=3), outcomes, strict=True):
        settle(broker, job, begun(outcome, clock.now()))
    [left] = broker.find(Filter(state=(State.READY,)), limit=1).jobs
    broker.act("cancel", [left.id])
    broker.renew([a_worker(id="one", put_back={"mail": {"paused": 3}})])

    found = read_reasons(broker, clock.now() - 60)

    assert found.counts[0] == ReasonCount("mail", PUT_BACK, "paused", 3)
    assert {(each.outcome, each.reason, each.count) for each in found.counts[1:]} == {
        ("succeeded", "completed", 1),
        ("failed", "error", 1),
        ("again", "timeout", 1),
        ("cancelled", "cancelled", 1),
    }
    assert read_reasons(broker, clock.now() + 1).counts == found.counts[:1]
    assert read_reasons(broker, clock.now() - 60, most_rows=1).since >= clock.now() - 60
