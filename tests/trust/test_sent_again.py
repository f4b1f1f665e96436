"""An enqueue that is sent again, at any moment of its job's life, makes one run. D35, V7, A39."""

from __future__ import annotations

import itertools
import sqlite3

import pytest

from penstock import App
from penstock.broker.filter import Filter
from penstock.enqueue.ids import Ids, derived_id
from penstock.job import Job, Lane, Parcel, State, failed, pack, put_back, succeeded, try_again
from penstock.testing.conformance.factories import a_job, claim, history_of, some_jobs

KINDS = {
    "plain": lambda clock: some_jobs(clock, 5),
    "tagged": lambda clock: some_jobs(clock, 5, tags={"tenant": "a"}),
    "derived": lambda clock: [
        a_job(clock, id=derived_id("batch", str(number))) for number in range(5)
    ],
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def jobs(request, clock) -> list[Job]:
    return request.param(clock)


def run_all(broker, outcome=None) -> list[str]:
    """Work as a worker does until nothing is due; the ids, once per run."""
    ran: list[str] = []
    while claimed := claim(broker, 3):
        assert all(broker.settle([(job, outcome or succeeded()) for job in claimed]))
        ran += [job.id for job in claimed]
    return ran


def ids(jobs) -> list[str]:
    return [job.id for job in jobs]


def test_before_its_claim(broker, jobs):
    broker.enqueue(jobs)

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_in_the_middle_of_its_claim(broker, jobs):
    broker.enqueue(jobs)
    held = claim(broker, 2)

    assert broker.enqueue(jobs).known == set(ids(jobs))
    rest = run_all(broker)
    assert broker.enqueue(jobs).known == set(ids(jobs))
    assert broker.settle([(job, succeeded()) for job in held]) == [True, True]

    assert sorted(ids(held) + rest) == sorted(ids(jobs))
    assert claim(broker, 10) == []


def test_after_it_succeeded(broker, jobs):
    """V7: settled is never run again."""
    broker.enqueue(jobs)
    run_all(broker)

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert claim(broker, 10) == []
    assert all(broker.get(job.id).state is State.SUCCEEDED for job in jobs)


def test_after_it_failed(broker, jobs):
    broker.enqueue(jobs)
    run_all(broker, failed("ValueError"))

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert claim(broker, 10) == []
    assert all(broker.get(job.id).state is State.FAILED for job in jobs)


def test_after_it_was_deleted(broker, jobs):
    broker.enqueue(jobs)
    broker.act("delete", ids(jobs))

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert claim(broker, 10) == []
    assert all(broker.get(job.id) is None for job in jobs)


def test_after_it_was_cancelled(broker, jobs):
    broker.enqueue(jobs)
    broker.act("cancel", ids(jobs))

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert claim(broker, 10) == []


def test_while_it_waits_for_a_retry(broker, clock, jobs):
    broker.enqueue(jobs)
    broker.settle([(job, try_again("OSError", clock.now() + 60)) for job in claim(broker, 10)])

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert claim(broker, 10) == []
    clock.advance(seconds=60)
    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_after_it_was_put_back(broker, jobs):
    broker.enqueue(jobs)
    broker.settle([(job, put_back("shutdown")) for job in claim(broker, 10)])

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_after_its_worker_died(broker, clock, jobs):
    broker.enqueue(jobs)
    claim(broker, 3, worker="dead")
    clock.advance(seconds=16)
    broker.recover()

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_every_one_by_itself(broker, jobs):
    broker.enqueue(jobs)

    for job in jobs:
        assert broker.enqueue([job]).known == {job.id}

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_one_by_one_first_and_then_all_together(broker, jobs):
    for job in jobs:
        broker.enqueue([job])

    assert broker.enqueue(jobs).known == set(ids(jobs))

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_as_part_of_another_list(broker, clock, jobs):
    others = some_jobs(clock, 4)
    broker.enqueue(jobs[1:3])

    answer = broker.enqueue([*others[:2], *jobs, *others[2:]])

    assert answer.known == set(ids(jobs[1:3]))
    assert sorted(run_all(broker)) == sorted(ids([*jobs, *others]))


def test_split_in_two(broker, jobs):
    broker.enqueue(jobs)

    for half in (jobs[:2], jobs[2:]):
        assert broker.enqueue(half).known == set(ids(half))

    assert sorted(run_all(broker)) == sorted(ids(jobs))


@pytest.mark.parametrize("kind", ["plain", "tagged", "derived"])
def test_overlapping_in_every_way(broker, clock, kind):
    spans = list(itertools.combinations(range(5), 2))
    for turn, (first, second) in enumerate(itertools.product(spans, repeat=2)):
        jobs = KINDS[kind](clock)
        if kind == "derived":
            jobs = [a_job(clock, id=derived_id(str(turn), job.id)) for job in jobs]
        clock.advance(seconds=1)
        one, other = jobs[first[0] : first[1]], jobs[second[0] : second[1]]

        broker.enqueue(one)
        answer = broker.enqueue(other)

        assert answer.known == set(ids(one)) & set(ids(other))
        assert sorted(run_all(broker)) == sorted({*ids(one), *ids(other)})


def test_twice_in_one_list(broker, jobs):
    broker.enqueue([*jobs, *jobs])

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_in_another_order(broker, jobs):
    broker.enqueue(jobs[::-1])
    broker.enqueue(jobs)

    assert sorted(run_all(broker)) == sorted(ids(jobs))


def test_a_parcel_packed_in_another_way(broker, clock):
    lane = Lane("default", "mail:send")
    first = Ids(clock).first()
    bodies = [b'{"args":{"n":%d}}' % n for n in range(100)]
    whole = Parcel(first, lane, bodies)
    head = Parcel(first, lane, bodies[:40])
    tail = Parcel(whole.ids()[40], lane, bodies[40:])

    broker.enqueue([head])
    answer = broker.enqueue([whole])
    assert answer.known == set(head.ids())
    answer = broker.enqueue([tail])

    assert answer.known == set(tail.ids())
    assert sorted(run_all(broker)) == sorted(whole.ids())


def test_with_what_a_parcel_once_held_partly_claimed_and_partly_settled(broker, clock):
    jobs = some_jobs(clock, 100)
    broker.enqueue(jobs)
    settled = claim(broker, 30)
    broker.settle([(job, succeeded()) for job in settled])
    held = claim(broker, 30)
    broker.act("cancel", [job.id for job in jobs[80:90]])

    parcels, rest = pack(jobs)
    assert rest == []
    for sent in (jobs, parcels, jobs[25:75], jobs[::3]):
        broker.enqueue(sent)

    left = run_all(broker)
    assert sorted(left) == sorted(ids(jobs[60:80] + jobs[90:]))
    assert broker.settle([(job, succeeded()) for job in held]) == [True] * 30


def test_a_hundred_times_leaves_one_history_row_per_run(broker, jobs):
    for _ in range(50):
        broker.enqueue(jobs)
    run_all(broker)
    for _ in range(50):
        broker.enqueue(jobs)

    assert run_all(broker) == []
    for job in jobs:
        events = [event for event in history_of(broker, job.id) if event.kind == "attempt"]
        assert [event.state for event in events] == [State.SUCCEEDED]
    assert len(broker.find(Filter(), limit=1000).jobs) == 5


def test_a_rollback_leaves_the_id_unsent(tmp_path, sqlite_broker, clock):
    connection = sqlite3.connect(sqlite_broker.store.path)
    job = a_job(clock)
    sqlite_broker.enqueue([job], connection=connection)
    connection.rollback()

    assert sqlite_broker.enqueue([job]).known == frozenset()

    assert run_all(sqlite_broker) == [job.id]
    connection.close()


def test_the_same_value_through_the_api(store_url):
    app = App("memory:")
    ran = []

    @app.task
    def send(n: int) -> None:
        ran.append(n)

    with app.testing(url=store_url) as t:
        job = send.job(1)
        for _ in range(3):
            job.enqueue()
        app.enqueue([job, send.job(2), job])
        t.drain()
        job.enqueue()
        app.enqueue([job])
        t.drain()

    assert ran == [1, 2]


def test_a_batch_that_is_sent_again_goes_on_where_it_stopped(store_url):
    app = App("memory:")
    ran = []

    @app.task
    def load(n: int) -> None:
        ran.append(n)

    rows = [(n,) for n in range(50)]
    with app.testing(url=store_url) as t:
        assert load.enqueue_many(rows[:20], id="import-7").count == 20
        t.drain()
        assert load.enqueue_many(rows, id="import-7").count == 50
        assert load.enqueue_many(rows, id="import-7").count == 50
        t.drain()

    assert sorted(ran) == list(range(50))
