"""Somebody sets the clock: leases hold, nothing runs twice, what is due follows the wall clock."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock import App, State
from penstock.job import succeeded, try_again
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, a_worker, begun, claim, settle, some_jobs

JUMPS = [3600, -3600, 86400, -86400]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_lease_outlives_a_jump_of_the_wall_clock(broker, clock, jump):
    broker.enqueue(some_jobs(clock, 3))
    broker.enqueue([a_job(clock, tags={"a": "b"})])
    held = claim(broker, 4)

    clock.jump(jump)

    assert broker.recover() == 0
    assert broker.recover(by="worker-1") == 0
    assert claim(broker, 4, worker="worker-2") == []
    assert broker.renew([a_worker()]).lapsed == frozenset()
    assert all(worker.alive for worker in broker.workers())
    assert broker.settle([(job, succeeded()) for job in held]) == [True] * 4


@pytest.mark.parametrize("jump", JUMPS)
def test_a_dead_worker_is_found_whatever_the_wall_clock_says(broker, clock, jump):
    broker.enqueue(some_jobs(clock, 3))
    claim(broker, 3)

    clock.jump(jump)
    clock.advance(seconds=16)

    assert broker.recover() == 3


@pytest.mark.parametrize("jump", JUMPS)
def test_jobs_can_be_enqueued_and_run_after_a_jump(broker, clock, jump):
    """An app goes on making ids after its clock was set back."""
    app = App(broker=broker)

    @app.task(name="mail:send")
    def send(n: int) -> int:
        return n

    @app.task(name="mail:sweep", tags={"a": "b"})
    def sweep() -> None: ...

    before = [send.enqueue(1), send.enqueue(2)]

    clock.jump(jump)
    after = [send.enqueue(3), sweep.enqueue(), send.enqueue(4)]

    jobs = claim(broker, 10)
    assert {job.id for job in jobs} == {handle.id for handle in before + after}
    assert all(broker.settle([(job, succeeded()) for job in jobs]))


def test_many_jumps_to_and_fro_make_no_id_twice(clock):
    app = App("memory:", clock=clock)

    @app.task
    def send(n: int) -> None: ...

    ids = set()
    for turn in range(200):
        clock.jump(3600 if turn % 2 else -3600)
        ids |= {send.job(n).id for n in range(10)}

    assert len(ids) == 2000


def test_a_scheduled_job_follows_the_wall_clock(broker, clock):
    tomorrow = clock.now() + 86400
    job = a_job(clock, run_at=tomorrow)
    broker.enqueue([job])

    clock.jump(3600)
    assert claim(broker) == []
    clock.jump(-86400)
    assert claim(broker) == []
    clock.jump(86400 * 2)

    assert [each.id for each in claim(broker)] == [job.id]


def test_a_job_for_a_date_runs_on_that_date(clock, store_url):
    app = App("memory:")

    @app.task
    def celebrate() -> None: ...

    with app.testing(url=store_url) as t:
        date = datetime.fromtimestamp(t.clock.now() + 30 * 86400, UTC)
        handle = celebrate.options(at=date).enqueue()

        t.clock.jump(29 * 86400)
        assert t.drain() == []
        t.clock.jump(86400 + 1)
        assert len(t.drain()) == 1
        assert handle.state() is State.SUCCEEDED


@pytest.mark.parametrize("jump", JUMPS)
def test_a_retry_set_before_a_jump_follows_the_wall_clock(broker, clock, jump):
    broker.enqueue([a_job(clock)])
    [job] = claim(broker)
    settle(broker, job, try_again("OSError", clock.now() + 300))

    clock.jump(jump)

    assert len(claim(broker)) == (1 if jump > 300 else 0)
    clock.jump(-jump)
    clock.advance(seconds=300)
    assert len(claim(broker)) == (0 if jump > 300 else 1)


@pytest.mark.parametrize("jump", [-3600, -86400])
def test_a_pause_without_an_end_holds_through_a_jump(broker, clock, jump):
    broker.enqueue([a_job(clock)])
    broker.put(Rule(RuleKind.PAUSE, task="mail:send"))

    clock.jump(jump)
    assert claim(broker) == []
    clock.jump(-2 * jump)
    assert claim(broker) == []

    assert broker.clear(Rule, rule_id(RuleKind.PAUSE, task="mail:send"))
    assert len(claim(broker)) == 1


def test_times_of_a_job_may_run_backwards_and_nothing_minds(broker, clock):
    broker.enqueue([a_job(clock, tags={"a": "b"})])
    [job] = claim(broker)
    clock.jump(-86400)

    settle(broker, job, begun(succeeded(), clock.now()))

    stored = broker.get(job.id)
    assert stored.state is State.SUCCEEDED
    assert stored.ended_at < stored.enqueued_at
    broker.history()
    broker.count()
