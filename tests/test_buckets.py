"""Buckets: ten bits of every id, the same for all jobs that must be kept in one place."""

from __future__ import annotations

import uuid
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import App, current_job, wait_for
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.enqueue.copy import enqueue_copy
from penstock.enqueue.ids import (
    BUCKETS,
    MOST_IN_PARCEL,
    Ids,
    bucket_by,
    bucket_for,
    bucket_of,
    derived_id,
    in_bucket,
    offset_of,
    prefix_of,
    time_of,
)
from penstock.errors import Refused
from penstock.flows.flow import member_of
from penstock.job import Job, State, Unique
from penstock.schedules.schedule import Schedule, job_for
from penstock.testing.clock import Clock
from penstock.worker import Worker

texts = st.text(min_size=1, max_size=40)
buckets = st.integers(0, BUCKETS - 1)


# Ids


@given(texts)
def test_the_same_text_decides_for_the_same_bucket(text: str):
    assert 0 <= bucket_for(text) < BUCKETS
    assert bucket_for(text) == bucket_for(text[:])
    assert bucket_of(Ids().next(None, bucket_for(text))) == bucket_for(text)
    assert bucket_of(Ids().first(bucket_for(text))) == bucket_for(text)


def test_texts_are_spread_over_all_buckets():
    assert {bucket_for(str(number)) for number in range(20_000)} == set(range(BUCKETS))


def test_a_unique_key_goes_before_a_key():
    assert bucket_by("once", "ada") == bucket_for("once")
    assert bucket_by(None, "ada") == bucket_for("ada")
    assert bucket_by(None, None) is None


@given(bucket=st.none() | buckets, count=st.integers(1, 2 * MOST_IN_PARCEL))
def test_a_run_of_ids_has_one_bucket_and_its_offsets_follow(bucket: int | None, count: int):
    clock = Clock()
    ids = Ids(clock)
    made: list[str] = []
    for _ in range(count):
        made.append(ids.next("lane", bucket))
        clock.advance(seconds=0.000005)

    runs = [made[start : start + MOST_IN_PARCEL] for start in range(0, count, MOST_IN_PARCEL)]
    for run in runs:
        assert len({prefix_of(id) for id in run}) == len({bucket_of(id) for id in run}) == 1
        assert [offset_of(id) for id in run] == list(range(len(run)))
        assert bucket is None or bucket_of(run[0]) == bucket


@given(st.lists(st.tuples(st.none() | buckets, st.booleans()), max_size=200))
def test_ids_of_any_buckets_sort_by_the_time_they_were_made(asked: list[tuple[Any, bool]]):
    clock = Clock()
    ids = Ids(clock)
    made: list[str] = []
    for bucket, alone in asked:
        made.append(ids.first(bucket) if alone else ids.next(None, bucket))
        clock.advance(seconds=0.00001)

    assert sorted(made) == made
    assert len(set(made)) == len(made)
    assert all(uuid.UUID(id).version == 7 for id in made)
    for id, (bucket, _) in zip(made, asked, strict=True):
        assert bucket is None or bucket_of(id) == bucket


def test_without_a_text_each_run_has_any_bucket_and_forty_random_bits():
    ids = Ids()
    made = [ids.first() for _ in range(4000)]

    assert len({bucket_of(id) for id in made}) > BUCKETS * 0.9
    noise = [int((id[22:23] + id[24:33]), 16) for id in made]
    assert len(set(noise)) == len(made)
    for bit in range(40):
        assert 0.4 < sum(each >> bit & 1 for each in noise) / len(made) < 0.6


@given(texts, buckets)
def test_an_id_is_told_into_another_bucket_and_nothing_else_of_it_changes(name: str, bucket: int):
    for id in (Ids().next(), derived_id(name)):
        moved = in_bucket(id, bucket)

        assert bucket_of(moved) == bucket
        assert in_bucket(moved, bucket_of(id)) == id
        assert (time_of(moved), offset_of(moved)) == (time_of(id), offset_of(id))
        assert uuid.UUID(moved).version == uuid.UUID(id).version
        assert uuid.UUID(moved).variant == uuid.RFC_4122


@given(texts, texts)
def test_a_derived_id_is_in_the_bucket_of_the_text_that_decides(name: str, text: str):
    assert bucket_of(derived_id(name, bucket=text)) == bucket_for(text)
    assert bucket_of(derived_id(name, "x")) == bucket_for(f"{name}\x00x")
    assert in_bucket(derived_id(name, bucket=text), 0) == in_bucket(derived_id(name), 0)


# Jobs


@pytest.fixture
def app(broker: Broker) -> App:
    app = App(broker=broker)

    @app.task(name="shop:count")
    def count(number: int = 0) -> int:
        return number

    @app.task(name="shop:add")
    def add(numbers: list[int], more: int = 0) -> int:
        return sum(numbers) + more

    @app.task(name="shop:day")
    def day(slot: date) -> None: ...

    return app


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.none() | texts, unique=st.none() | texts)
def test_a_job_is_in_the_bucket_of_its_unique_key_or_key(
    memory_broker: Broker, key: str | None, unique: str | None
):
    app = App(broker=memory_broker)
    task = app.task(name="shop:nothing")(lambda: None)
    told = task.options(
        key=None if key is None else key.replace("\x00", "x"),
        unique=None if unique is None else unique.replace("\x00", "x"),
    )

    made = [told.job() for _ in range(3)]

    chosen = told.chosen
    expected = bucket_by(chosen.unique and chosen.unique.key, chosen.key)
    assert expected is None or {bucket_of(job.id) for job in made} == {expected}


def test_keyed_jobs_of_many_rows_are_in_the_bucket_of_their_key(app: App):
    app.tasks["shop:count"].options(key="ada").enqueue_many([(number,) for number in range(300)])

    assert {bucket_of(job.id) for job in app.broker.find(Filter(), limit=300).jobs} == {
        bucket_for("ada")
    }


def test_a_copy_is_in_the_bucket_of_its_key(app: App, clock: Clock):
    handle = app.tasks["shop:count"].options(key="ada").enqueue(1)
    app.broker.act("cancel", [handle.id])

    copy = enqueue_copy(app.broker, handle.id, ("ada", ""), app=app)

    assert bucket_of(copy) == bucket_of(handle.id) == bucket_for("ada")


def test_jobs_of_a_backfill_are_in_the_bucket_of_their_key(app: App):
    app.tasks["shop:day"].backfill(date(2026, 1, 1), date(2026, 1, 5))

    jobs = app.broker.find(Filter()).jobs
    assert (len(jobs), {bucket_of(job.id) for job in jobs}) == (5, {bucket_for("backfill")})


def test_slots_of_a_schedule_are_in_the_bucket_of_its_name_or_key():
    for key, text in ((None, "hourly"), ("ada", "ada")):
        schedule = Schedule(name="hourly", job=Job(task="shop:count", id="", key=key), every=60.0)

        assert {bucket_of(job_for(schedule, 60.0 * n, 0.0).id) for n in range(5)} == {
            bucket_for(text)
        }


def test_a_schedule_that_is_run_now_keeps_its_bucket(app: App):
    app.schedules.put("hourly", app.tasks["shop:count"], every=3600)

    assert bucket_of(app.schedules.run_now("hourly").id) == bucket_for("hourly")


# Flows


def test_members_of_a_flow_are_in_the_bucket_of_its_root(app: App):
    count, add = app.tasks["shop:count"], app.tasks["shop:add"]
    some = count.map(range(200))
    keyed = count.options(key="ada").map(range(3))
    root = add.options(key="bob").job(some.output, more=add.job(keyed.output).output)
    roots_id = root.id

    handle = root.enqueue()

    jobs = app.broker.find(Filter(), limit=500).jobs
    assert (len(jobs), handle.id) == (205, roots_id)
    assert {bucket_of(job.id) for job in jobs} == {bucket_for("bob")}
    members = [member_of(job.body) for job in jobs]
    assert all(member is not None and member.id == roots_id for member in members)
    Worker(app, drain=True).work()
    assert handle.result() == sum(range(200)) + 3


def test_sent_again_a_flow_has_the_same_ids(app: App):
    count, add = app.tasks["shop:count"], app.tasks["shop:add"]
    members = count.map(range(5))
    root = add.job(members.output)

    first = root.enqueue()
    stored = {job.id for job in app.broker.find(Filter()).jobs}
    again = root.enqueue()

    assert again.id == first.id
    assert {job.id for job in app.broker.find(Filter()).jobs} == stored
    assert {id for part in members.parts for id in part.ids()} < stored


def test_a_job_that_was_enqueued_before_keeps_its_id_and_is_refused_in_a_flow(app: App):
    count, add = app.tasks["shop:count"], app.tasks["shop:add"]
    job = count.job(1)
    job.enqueue()
    before = job.id

    with pytest.raises(Refused, match=r"was enqueued before, without this flow"):
        add.job([job.output]).enqueue()

    assert job.id == before
    assert [found.id for found in app.broker.find(Filter()).jobs] == [before]


def test_a_named_flow_and_what_waits_for_a_signal_are_in_the_bucket_of_the_first(app: App):
    first = app.tasks["shop:count"].options(key="ada").job(1)
    waiting: Job[Any] = wait_for("paid")

    app.flow("order").enqueue(first, waiting)

    jobs = app.broker.find(Filter()).jobs
    assert {job.id for job in jobs} == {first.id, waiting.id}
    assert {bucket_of(job.id) for job in jobs} == {bucket_for("ada")}


def test_what_a_job_spawns_is_in_its_bucket(app: App):
    count, add = app.tasks["shop:count"], app.tasks["shop:add"]
    told: list[str] = []

    @app.task(name="shop:split")
    def split() -> None:
        parts = [count.options(key="bob").job(1), count.job(2)]
        current_job().spawn(parts)
        last = add.job([0])
        current_job().spawn(count.map(range(3)), then=last)
        told.extend([*(part.id for part in parts), last.id])

    split.options(key="ada").enqueue()
    Worker(app, drain=True).work()

    jobs = app.broker.find(Filter(), limit=50).jobs
    assert len(jobs) == 7
    assert {job.state for job in jobs} == {State.SUCCEEDED}
    assert {bucket_of(job.id) for job in jobs} == {bucket_for("ada")}
    assert set(told) <= {job.id for job in jobs}


def test_a_unique_job_stands_in_the_bucket_of_its_unique_key(app: App):
    told = app.tasks["shop:count"].options(unique="once", key="ada")

    first, second = told.enqueue(1), told.enqueue(2)

    assert (first.id == second.id, bucket_of(first.id)) == (True, bucket_for("once"))
    [job] = app.broker.find(Filter()).jobs
    assert job.unique == Unique("once")
