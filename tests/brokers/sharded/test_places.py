"""Where jobs are: keys, flows, schedules; and one history out of several."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App
from penstock.broker.filter import Filter
from penstock.brokers.sharded.positions import Places, read_position
from penstock.enqueue.ids import bucket_for, bucket_of
from penstock.errors import Refused
from penstock.job import State, Unique, failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule
from penstock.testing.conformance.factories import (
    a_job,
    a_schedule,
    claim,
    enqueue_and_claim,
    ids_of,
    settle,
    some_jobs,
)
from tests.brokers.sharded.unplugged import IN_A, IN_B, Unplugged, job_in, sharded
from tests.workers import drain


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def broker(clock, stores):
    return sharded(clock, *stores)


def key_in(broker, shard: str) -> str:
    keys = (f"key-{number}" for number in range(100))
    return next(key for key in keys if broker.shards.map.owner(bucket_for(key)) == shard)


def test_a_unique_key_of_another_shard_is_refused(broker, clock):
    job = job_in(clock, IN_A, unique=Unique(key_in(broker, "b")))

    with pytest.raises(Refused, match=r"is on shard a, .* its unique key 'key-.' holds on shard b"):
        broker.enqueue([job])

    assert broker.get(job.id) is None


@pytest.mark.parametrize(
    "rule",
    [
        Rule(RuleKind.ORDER, queue="default", policy="wait"),
        Rule(RuleKind.LIMIT, queue="default", running=1, per_key=True),
    ],
)
def test_a_key_of_another_shard_is_refused_where_a_rule_counts_it(broker, clock, rule):
    job = job_in(clock, IN_A, key=key_in(broker, "b"))
    broker.enqueue([job_in(clock, IN_A, key=key_in(broker, "b"))])
    broker.put(rule)

    with pytest.raises(Refused, match=r"its key 'key-.' holds on shard b"):
        broker.enqueue([job])
    broker.enqueue([job_in(clock, IN_A, key=key_in(broker, "b"), queue="other")])


def test_what_a_job_spawned_elsewhere_is_refused(broker, clock):
    parent = enqueue_and_claim(broker, clock)
    here = bucket_of(parent.id)
    spawned = job_in(clock, (here + 512) % 1024)
    outcome = msgspec.structs.replace(succeeded(), spawned=(spawned,))

    with pytest.raises(Refused, match="is of another shard than"):
        settle(broker, parent, outcome)

    assert broker.get(parent.id).state is State.RUNNING


def test_where_one_shard_has_all_buckets_a_limit_is_taken(clock, stores):
    stores[0].enqueue([a_job(clock)])
    broker = sharded(clock, *stores)

    broker.put(Rule(RuleKind.LIMIT, queue="default", running=5))

    assert len(broker.records(Rule)) == 1


def test_a_schedule_is_where_its_jobs_are(broker, stores):
    one, other = key_in(broker, "a"), key_in(broker, "b")
    broker.put(a_schedule(one))
    broker.put(a_schedule(other))

    assert [[kept.name for kept in store.records(Schedule)] for store in stores] == [[one], [other]]
    assert [kept.name for kept in broker.records(Schedule)] == sorted([one, other])
    assert broker.clear(Schedule, other) is True
    assert broker.clear(Schedule, other) is False


def test_a_schedule_whose_key_leads_elsewhere_now_is_refused(broker):
    schedule = a_schedule(key_in(broker, "a"))
    broker.put(schedule)
    moved = msgspec.structs.replace(schedule.job, key=key_in(broker, "b"))

    with pytest.raises(Refused, match="is on shard a, and with this key its jobs are on b"):
        broker.put(msgspec.structs.replace(schedule, job=moved))


def test_flows_and_what_they_spawn_run_on_their_shards(broker, stores):
    app = App(broker=broker)

    @app.task(name="shop:double")
    def double(number: int) -> int:
        return 2 * number

    @app.task(name="shop:add")
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    handles = []
    for _ in range(8):
        doubled = double.map([1, 2, 3])
        handles.append(add.job(doubled.output).enqueue())
    drain(app)

    assert [handle.result(timeout=1) for handle in handles] == [12] * 8
    assert all(store.history() for store in stores)


# One history


def test_pages_of_the_history_have_every_row_once_forward_and_back(broker, clock):
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B) * 6]
    for job in jobs:
        clock.advance(seconds=1)
        broker.enqueue([job])
        broker.act("cancel", [job.id])
        broker.put(Rule(RuleKind.PAUSE, queue=job.id[-3:]))  # on both, and shown once
    whole = broker.history()
    assert [row.job for row in whole if row.kind == "cancel"] == ids_of(jobs)
    assert len([row for row in whole if row.kind == "rule"]) == len(jobs)

    for limit in (1, 2, 5):
        forward, after = [], "0"
        while page := broker.history(after, limit):
            forward += page
            after = page[-1].position
        back, before = [], None
        while page := broker.history(None, limit, before=before):
            back[:0] = page
            before = page[0].position
        assert [(row.kind, row.job) for row in forward] == [(row.kind, row.job) for row in whole]
        assert [(row.kind, row.job) for row in back] == [(row.kind, row.job) for row in whole]


def test_positions_of_one_reading_are_in_its_order_as_texts(broker, clock):
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B, IN_B, IN_A, IN_B)]
    for job in jobs:
        clock.advance(seconds=1)
        broker.enqueue([job])
        broker.act("cancel", [job.id])

    positions = [row.position for row in broker.history()]

    assert positions == sorted(positions)
    assert positions[0] > "0"


@given(st.text(max_size=40) | st.sampled_from(["a=1", "c=1", "a=1,", "a=1/c", "a=1,b=2/b", "/a"]))
def test_a_position_is_read_as_it_was_written_or_refused(text: str):
    try:
        places = read_position(text, ["a", "b"])
    except Refused:
        return
    assert read_position(str(places), ["a", "b"]) == places
    assert places.own in {"", "a", "b"}


def test_a_position_of_another_store_is_refused(broker):
    for position in ("00000000000000000012", "x=1/x", "b=2/a,", "b=2/c"):
        with pytest.raises(Refused, match="is no position of this store"):
            broker.history(position)
    assert str(Places({"b": "0", "a": "1"}, "a")) == "a=1,b=0/a"


def test_found_pages_have_every_job_once_newest_first(broker, clock):
    for _ in range(7):
        broker.enqueue([job_in(clock, IN_A), job_in(clock, IN_B)])
        clock.advance(seconds=1)

    for limit in (1, 3, 7, 14, 20):
        found, after = [], None
        while True:
            page = broker.find(Filter(), after, limit)
            found += ids_of(page.jobs)
            after = page.after
            if after is None:
                break
        assert found == sorted(set(found), reverse=True)
        assert len(found) == 14


def test_counts_and_workers_are_added_up(broker, clock):
    broker.enqueue([*some_jobs(clock, 3), job_in(clock, IN_A), job_in(clock, IN_B)])
    taken = claim(broker, limit=4)
    settle(broker, taken[0], failed("x"))

    [count] = broker.count()
    [worker] = broker.workers()

    assert (count.ready, count.running, count.failed) == (1, 3, 1)
    assert (worker.id, worker.running) == ("worker-1", 3)
