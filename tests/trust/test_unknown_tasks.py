"""Tasks that nobody here knows, or not in this version: the jobs stay, say why, and run later."""

from __future__ import annotations

import pytest

from penstock import App, State
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_job, claim, settle


@pytest.fixture
def store(store_url) -> str:
    return store_url


def test_a_job_of_an_unknown_task_stays_and_runs_when_the_task_appears(broker, clock):
    """D53: it is not dropped, not failed, and counts no attempt while it waits."""
    unknown, known = a_job(clock, task="new:task"), a_job(clock)
    broker.enqueue([unknown, known])

    for _ in range(50):
        for job in claim(broker, 10):
            assert job.id == known.id
            settle(broker, job, succeeded())
        clock.advance(minutes=10)
        broker.recover()

    stays = broker.get(unknown.id)
    assert (stays.state, stays.attempt, stays.failures) == (State.READY, 0, 0)
    [job] = claim(broker, tasks={"new:task": 1}, worker="worker-2")
    assert job.id == unknown.id


def test_why_names_the_task_that_nobody_knows(broker, clock):
    job = a_job(clock, task="mail:sned")
    broker.enqueue([job])
    claim(broker)

    why = broker.why(job.id)

    assert why.cause == "no_task"
    assert "mail:sned" in why.sentence


def test_a_newer_version_waits_for_a_newer_worker(broker, clock):
    job = a_job(clock, version=3)
    broker.enqueue([job])

    assert claim(broker, tasks={"mail:send": 2}) == []
    assert broker.why(job.id).cause == "no_version"
    assert len(claim(broker, tasks={"mail:send": 3})) == 1


def test_an_unknown_task_does_not_hold_up_its_queue(broker, clock):
    broker.enqueue([a_job(clock, task=f"gone:{n}", priority=100) for n in range(100)])
    clock.advance(hours=10)
    job = a_job(clock, priority=-100)
    broker.enqueue([job])

    assert [each.id for each in claim(broker, 10)] == [job.id]


def test_a_deploy_that_renames_a_task_runs_the_old_jobs(store):
    before, after = App("memory:"), App("memory:")

    @before.task(name="mail:send")
    def send(n: int) -> None: ...

    with before.testing(url=store) as t:
        handle = send.enqueue(1)

    ran = []

    @after.task(name="letters:send", aliases=("mail:send",))
    def send_letter(n: int) -> None:
        ran.append(n)

    with after.testing(url=store) as t:
        [attempt] = t.drain()
        assert attempt.job.id == handle.id
        assert t.assert_enqueued(send_letter, 1)
    assert ran == [1]


def test_a_deploy_that_removes_a_task_and_one_that_brings_it_back(store):
    first, second, third = App("memory:"), App("memory:"), App("memory:")

    @first.task(name="report")
    def report(n: int) -> int: ...

    with first.testing(url=store):
        handle = report.enqueue(7)

    @second.task(name="other")
    def other() -> None: ...

    with second.testing(url=store) as t:
        assert t.drain() == []
        job = t.broker.get(handle.id)
        assert (job.state, job.attempt) == (State.READY, 0)
        assert t.broker.why(handle.id).cause == "no_task"

    @third.task(name="report")
    def report_again(n: int) -> int:
        return n * 2

    with third.testing(url=store) as t:
        t.drain()
        assert third.handle(handle.id).result(timeout=0) == 14


def test_an_argument_that_the_new_code_does_not_take_fails_with_a_reason(store):
    old, new = App("memory:"), App("memory:")

    @old.task(name="send")
    def send(to: str, colour: str) -> None: ...

    with old.testing(url=store):
        handle = send.enqueue("ada", "red")

    @new.task(name="send")
    def send_plain(to: str) -> None: ...

    with new.testing(url=store) as t:
        good = send_plain.enqueue("bob")
        t.drain()

        job = t.broker.get(handle.id)
        assert (job.state, job.reason) == (State.FAILED, "unreadable")
        assert "colour" in job.error
        assert good.state() is State.SUCCEEDED
        assert t.broker.act("retry", [handle.id]) == [handle.id]


def test_a_declared_task_is_never_run_by_those_who_only_declared_it(store):
    producer = App("memory:")

    @producer.declare("media:resize")
    def resize(image: int) -> str: ...

    with producer.testing(url=store) as t:
        handle = resize.enqueue(1)

        assert t.drain() == []
        assert handle.why().cause == "no_task"
