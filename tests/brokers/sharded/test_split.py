"""One enqueue over several shards: killed anywhere, answers lost, sent twice, refused."""

from __future__ import annotations

import contextlib

import pytest

from penstock import App
from penstock.broker.shard_map import SplitEnqueue
from penstock.broker.values import Batch
from penstock.brokers.sharded.enqueuing import SENDER_SECONDS
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.job import Job, Unique
from penstock.testing.conformance.factories import claim, some_jobs
from tests.brokers.sharded.unplugged import (
    IN_A,
    IN_B,
    Killed,
    Unplugged,
    ids_in,
    job_in,
    sharded,
)


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def broker(clock, stores):
    return sharded(clock, *stores)


def both(clock, **fields) -> list[Job]:
    """Jobs of one enqueue, which belong to two shards; the first to a."""
    return [job_in(clock, bucket, **fields) for bucket in (IN_A, IN_B, IN_A, IN_B)]


def records(stores) -> list[SplitEnqueue]:
    return [record for store in stores for record in store.records(SplitEnqueue)]


def test_each_shard_stores_its_own_and_no_record_stays(broker, clock, stores):
    jobs = both(clock)

    answer = broker.enqueue(jobs)

    assert answer.known == frozenset()
    assert ids_in(stores[0], jobs) == [jobs[0].id, jobs[2].id]
    assert ids_in(stores[1], jobs) == [jobs[1].id, jobs[3].id]
    assert records(stores) == []


def test_sent_again_all_are_known(broker, clock, stores):
    jobs = both(clock)
    broker.enqueue(jobs)

    assert broker.enqueue(jobs).known == {job.id for job in jobs}
    assert records(stores) == []


def test_jobs_of_one_shard_leave_no_record_on_the_way(broker, clock, stores):
    broker.enqueue([job_in(clock, IN_A), job_in(clock, IN_A)])

    assert stores[0].calls[-1] == "enqueue"
    assert "put" not in stores[0].calls[stores[0].calls.index("enqueue") :]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("steps", range(4))
def test_killed_anywhere_all_are_stored_in_the_end_or_none(broker, clock, stores, victim, steps):
    jobs = both(clock)
    stores[victim].kill_at = steps
    with contextlib.suppress(Killed):
        broker.enqueue(jobs)
    stores[victim].kill_at = None
    begun = bool(records(stores)) or bool(ids_in(stores[0], jobs))

    clock.advance(seconds=SENDER_SECONDS)
    sharded(clock, *stores).recover()

    assert len(ids_in(broker, jobs)) == (4 if begun else 0)
    assert records(stores) == []
    assert len(claim(broker, limit=9)) == (4 if begun else 0)


def test_what_somebody_is_sending_is_left_to_them(broker, clock, stores):
    stores[1].kill_at = 0
    jobs = both(clock)
    with pytest.raises(Killed):
        broker.enqueue(jobs)
    stores[1].kill_at = None

    clock.advance(seconds=SENDER_SECONDS - 1)
    broker.recover()
    assert ids_in(stores[1], jobs) == []
    clock.advance(seconds=1)
    broker.recover()

    assert len(ids_in(broker, jobs)) == 4


def test_the_rest_is_stored_when_its_shard_is_back(broker, clock, stores):
    jobs = both(clock)
    stores[1].away = True

    broker.enqueue(jobs)

    assert len(ids_in(stores[0], jobs)) == 2
    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()
    assert len(records(stores[:1])) == 1
    stores[1].away = False
    broker.recover()
    assert len(ids_in(stores[1], jobs)) == 2
    assert records(stores) == []


def test_where_the_record_cannot_be_kept_nothing_is_stored(broker, clock, stores):
    jobs = both(clock)
    stores[0].away = True
    with pytest.raises(UnknownOutcome, match="shard a: nobody answers; whether the jobs"):
        broker.enqueue(jobs)
    stores[0].away = False

    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()

    assert ids_in(broker, jobs) == []


@pytest.mark.parametrize(("store", "verb"), [(0, "put"), (0, "enqueue"), (1, "enqueue")])
def test_an_answer_that_is_lost_loses_no_job_and_stores_none_twice(
    broker, clock, stores, store, verb
):
    jobs = both(clock)
    stores[store].lose = verb
    try:
        broker.enqueue(jobs)
    except UnknownOutcome as error:
        assert verb == "put"
        broker.enqueue(error.jobs)
    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()

    assert sorted(job.id for job in claim(broker, limit=9)) == sorted(job.id for job in jobs)
    assert claim(broker, limit=9, worker="worker-2") == []
    assert records(stores) == []


def test_finished_by_two_at_once_each_is_stored_once(broker, clock, stores):
    stores[1].away = True
    jobs = both(clock)
    broker.enqueue(jobs)
    stores[1].away = False
    record = records(stores)[0]
    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()
    stores[0].put(record)  # as somebody has it who was as quick

    sharded(clock, *stores).recover()

    assert len(claim(broker, limit=9)) == 4
    assert records(stores) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [({"run_at": float("nan")}, "not a time"), ({"body": b"x" * 300_000}, "256")],
)
def test_one_bad_job_keeps_all_of_them_out(broker, clock, stores, fields, says):
    jobs = [job_in(clock, IN_A), job_in(clock, IN_B, **fields)]

    with pytest.raises(Refused, match=says if says != "256" else "limit is 262,144"):
        broker.enqueue(jobs)

    assert ids_in(broker, jobs) == []
    assert records(stores) == []


def test_a_key_that_stands_is_named(broker, clock):
    def once(name: str) -> Job:
        [job] = some_jobs(clock, 1, unique=Unique(name))
        return job

    first = [once(name) for name in "klmnop"]
    assert len({broker.shards.of(job.id).name for job in first}) == 2
    broker.enqueue(first)
    again = [once(name) for name in "klmnop"]

    assert broker.enqueue(again).standing == {
        new.id: old.id for new, old in zip(again, first, strict=True)
    }


def test_a_batch_counts_on_one_shard(broker, clock):
    with pytest.raises(Refused, match="its rows are of several shards"):
        broker.enqueue(both(clock), batch=Batch("import"))

    answer = broker.enqueue([job_in(clock, IN_B)], batch=Batch("import"))

    assert answer.batch == 1
    assert broker.enqueue((), batch=Batch("import")).batch == 1


def test_rows_of_an_import_are_of_one_bucket_and_go_on_where_it_stopped(broker):
    app = App(broker=broker)

    @app.task(name="shop:count")
    def count(number: int) -> int:
        return number

    def rows(broken: bool):
        for number in range(300):
            if broken and number == 200:
                raise StoreUnreachable("the program ended")
            yield (number,)

    for options in ({}, {"tags": {"tenant": "a"}}):
        name = f"import-{len(options)}"
        with pytest.raises(StoreUnreachable):
            count.options(**options).enqueue_many(rows(broken=True), id=name)
        assert count.options(**options).enqueue_many(rows(broken=False), id=name).count == 300
    assert sum(each.ready for each in broker.count()) == 600
