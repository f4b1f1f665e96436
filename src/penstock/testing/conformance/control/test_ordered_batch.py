"""Order per key in batches: several jobs of a key at a time, in their order, whoever claims."""

from __future__ import annotations

import threading

import pytest

from penstock.job import State, failed, put_back, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle

LIMIT, ORDER, PAUSE = RuleKind.LIMIT, RuleKind.ORDER, RuleKind.PAUSE


@pytest.fixture(autouse=True)
def in_batches(broker):
    """The queue orders is handed out in batches of one key."""
    broker.put(Rule(ORDER, queue="orders", policy="batch"))


def sent(broker, clock, count, key="ada", **fields):
    """Jobs of one key, stored, each after those before."""
    jobs = []
    for _ in range(count):
        clock.advance(seconds=0.01)
        jobs.append(a_job(clock, **{"queue": "orders", "key": key, **fields}))
    broker.enqueue(jobs)
    return ids_of(jobs)


def taken(broker, limit=10, worker="worker-1"):
    return ids_of(claim(broker, limit, worker))


def test_a_claim_takes_the_first_jobs_of_a_key_in_their_order(broker, clock):
    """B52: as many as it asks for."""
    ids = sent(broker, clock, 5)

    assert taken(broker, limit=3) == ids[:3]


def test_a_key_waits_until_all_of_its_batch_have_ended(broker, clock):
    """B52: the group is held as long as any of them is, whatever became of the others."""
    ids = sent(broker, clock, 6)
    first, second, third = claim(broker, limit=3)

    assert taken(broker, worker="worker-2") == []
    assert settle(broker, third, succeeded())
    assert settle(broker, first, failed("boom"))
    assert taken(broker, worker="worker-2") == []
    assert settle(broker, second, succeeded())

    assert taken(broker, worker="worker-2") == ids[3:]


@pytest.mark.needs("order across buckets")
def test_it_begins_with_the_key_of_the_oldest_job_and_goes_on_with_others(broker, clock):
    """B52: filled from the oldest key; what it leaves room for is filled from the next ones."""
    mid = sent(broker, clock, 2, "mid")
    sent(broker, clock, 2, "bob")
    sent(broker, clock, 2, "zoe")

    found = taken(broker, limit=2)
    assert found == mid
    rest = claim(broker, limit=3)

    assert [job.key for job in rest[:2]] in (["bob", "bob"], ["zoe", "zoe"])
    assert len({job.key for job in rest}) == 2


@pytest.mark.needs("order across buckets")
def test_each_claim_begins_with_the_oldest(broker, clock):
    ada, bob = sent(broker, clock, 4, "ada"), sent(broker, clock, 4, "bob")

    batch = claim(broker, limit=2)
    assert ids_of(batch) == ada[:2]
    other = claim(broker, limit=2)
    assert ids_of(other) == bob[:2]
    for job in (*batch, *other):
        assert settle(broker, job, succeeded())

    assert taken(broker, limit=2) == ada[2:]


def test_order_is_over_tasks_versions_and_priorities(broker, clock):
    """A job of another lane comes between: the batch ends before it."""
    first = sent(broker, clock, 2)
    between = sent(broker, clock, 1, task="mail:sweep")
    last = sent(broker, clock, 2)

    for expected in (first, between, last):
        jobs = claim(broker, limit=10)
        assert ids_of(jobs) == expected
        assert list(broker.settle([(job, succeeded()) for job in jobs])) == [True] * len(jobs)


def test_one_that_is_tried_again_holds_those_behind_it_and_comes_alone(broker, clock):
    """What it did wrong is not to be done to others once more."""
    ids = sent(broker, clock, 5)
    first, second, third = claim(broker, limit=3)
    settle(broker, first, succeeded())
    settle(broker, second, try_again("no", clock.now() + 60))
    settle(broker, third, succeeded())

    assert taken(broker) == []
    clock.advance(seconds=61)
    [alone] = claim(broker, limit=10)
    assert alone.id == ids[1]
    settle(broker, alone, succeeded())

    assert taken(broker) == ids[3:]


def test_one_in_the_middle_that_was_tried_before_ends_the_batch(broker, clock):
    ids = sent(broker, clock, 4)
    first, second, *_ = claim(broker, limit=2)
    settle(broker, second, try_again("no", clock.now()))
    settle(broker, first, put_back("later"))

    assert taken(broker, limit=10) == ids[:1]


def test_one_that_is_due_later_ends_the_batch(broker, clock):
    ids = sent(broker, clock, 2)
    sent(broker, clock, 1, run_at=clock.now() + 60)
    sent(broker, clock, 2)

    jobs = claim(broker, limit=10)
    assert ids_of(jobs) == ids
    for job in jobs:
        settle(broker, job, succeeded())

    assert taken(broker) == []


def test_those_that_are_put_back_come_again_in_their_order(broker, clock):
    ids = sent(broker, clock, 4)
    jobs = claim(broker, limit=3)
    clock.advance(seconds=5)
    for job in reversed(jobs):
        settle(broker, job, put_back("shutdown"))

    assert taken(broker, limit=4) == ids


def test_a_batch_whose_worker_died_comes_again(broker, clock):
    """One by one, since they were in a crash; and in their order."""
    ids = sent(broker, clock, 3)
    jobs = claim(broker, limit=2)
    broker.recover(dead="worker-1", started=ids_of(jobs))

    [head] = claim(broker, limit=10, worker="worker-2")
    assert (head.id, head.lapses) == (ids[0], 1)
    assert taken(broker, worker="worker-3") == []


def test_a_tag_that_is_paused_ends_the_batch(broker, clock):
    broker.put(Rule(PAUSE, queue="orders", tag=("tenant", "a")))
    ids = sent(broker, clock, 2)
    sent(broker, clock, 1, tags={"tenant": "a"})
    sent(broker, clock, 1)

    jobs = claim(broker, limit=10)
    assert ids_of(jobs) == ids
    for job in jobs:
        settle(broker, job, succeeded())

    assert taken(broker) == []


def test_a_limit_of_each_key_bounds_it(broker, clock):
    broker.put(Rule(LIMIT, queue="orders", running=2, per_key=True))
    ids = sent(broker, clock, 5)

    assert taken(broker) == ids[:2]
    assert taken(broker, worker="worker-2") == []


def test_no_key_is_handed_out_twice(broker, clock):
    """Of several that claim at the same time one has a key, and the others none of it."""
    expected = {key: sent(broker, clock, 20, key) for key in ("ada", "bob", "cy")}
    found = []
    lock = threading.Lock()

    def work(worker):
        for _ in range(40):
            jobs = claim(broker, limit=5, worker=worker)
            with lock:
                found.extend(jobs)
            by_key = {job.key for job in jobs}
            assert not any(
                other.key in by_key and other.worker != worker and other.state is State.RUNNING
                for other in (broker.get(job.id) for job in list(found) if job not in jobs)
                if other is not None
            )
            for job in jobs:
                settle(broker, job, succeeded())

    threads = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    order = {key: [job.id for job in found if job.key == key] for key in expected}
    assert order == expected
