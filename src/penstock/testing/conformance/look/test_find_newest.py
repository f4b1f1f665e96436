"""Find, newest first: by when a job was made, also where its id was derived and holds no time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.filter import Filter
from penstock.enqueue.ids import derived_id
from penstock.errors import Refused
from penstock.job import State, failed, succeeded
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle


def a_derived(clock, name, **fields):
    return a_job(clock, id=derived_id("test", name), **fields)


def all_pages(broker, filter, limit):
    pages, after = [], None
    while True:
        page = broker.find(filter, after, limit)
        pages.append(page)
        if page.after is None:
            return [job for each in pages for job in each.jobs]
        after = page.after


def mixed_jobs(broker, clock):
    """Jobs with both kinds of ids by turns, in every state, oldest first."""
    made_one_after_the_other = []
    for number in range(24):
        clock.advance(seconds=1)
        fields: dict[str, Any] = {"queue": "mail" if number % 3 else "media"}
        if number % 4 < 2:
            fields["tags"] = {"tenant": "a"}
        job = a_derived(clock, str(number), **fields) if number % 2 else a_job(clock, **fields)
        broker.enqueue([job])
        made_one_after_the_other.append(job)
        if number % 5 == 0:
            [taken] = claim(broker)
            settle(broker, taken, succeeded() if number % 2 else failed("x"))
        if number % 7 == 0:
            broker.act("cancel", [job.id])
    claim(broker, limit=3)
    return made_one_after_the_other


@pytest.fixture
def mixed(broker, clock):
    return mixed_jobs(broker, clock)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_a_derived_job_stands_where_its_time_is(broker, mixed, limit):
    found = all_pages(broker, Filter(), limit)

    assert ids_of(found) == ids_of(reversed(mixed))
    assert {job.state for job in found} > {State.READY, State.RUNNING, State.FAILED}


@pytest.mark.parametrize("limit", [1, 4, 100])
@pytest.mark.parametrize(
    "wanted",
    [
        Filter(state=(State.FAILED, State.CANCELLED)),
        Filter(state=(State.SUCCEEDED,)),
        Filter(state=(State.READY, State.RUNNING)),
        Filter(queue=("mail",)),
        Filter(tags={"tenant": ("a",)}),
        Filter(tags={"tenant": ("a", "b")}, state=(State.READY,)),
    ],
)
def test_a_filter_keeps_the_order(broker, mixed, wanted, limit):
    expected = [job.id for job in reversed(mixed) if wanted.matches(broker.get(job.id))]

    assert ids_of(all_pages(broker, wanted, limit)) == expected


@pytest.mark.parametrize("limit", [1, 5, 100])
def test_those_with_derived_ids_alone(broker, mixed, limit):
    expected = [job.id for job in reversed(mixed) if job.id.startswith("ff")]

    assert ids_of(all_pages(broker, Filter(derived=True), limit)) == expected
    of_a = Filter(derived=True, tags={"tenant": ("a",)})
    tagged = [job.id for job in reversed(mixed) if job.id in expected and job.tags]
    assert ids_of(all_pages(broker, of_a, limit)) == tagged


def test_one_of_last_month_stands_below_one_of_now(broker, clock):
    old = a_derived(clock, "old")
    broker.enqueue([old])
    clock.advance(days=5)
    new = a_job(clock)
    broker.enqueue([new])

    assert ids_of(broker.find(Filter()).jobs) == [new.id, old.id]
    assert ids_of(broker.find(Filter(since=clock.now() - 60)).jobs) == [new.id]


def test_a_job_keeps_its_place_when_it_ends_and_is_tried_again(broker, clock):
    first, second = a_derived(clock, "first"), a_derived(clock, "second")
    broker.enqueue([first])
    clock.advance(seconds=5)
    broker.enqueue([second])
    clock.advance(seconds=5)
    last = a_job(clock)
    broker.enqueue([last])
    order = [last.id, second.id, first.id]

    [taken] = claim(broker)
    settle(broker, taken, failed("x"))
    assert ids_of(broker.find(Filter()).jobs) == order
    clock.advance(seconds=5)
    broker.act("retry", [first.id])
    assert ids_of(broker.find(Filter()).jobs) == order
    for job in claim(broker, limit=3):
        settle(broker, job, succeeded())
    assert ids_of(broker.find(Filter()).jobs) == order


def test_a_place_that_no_page_ended_at_is_refused(broker, clock):
    derived = derived_id("test", "x")
    ordinary = a_job(clock).id

    for place in (
        derived,
        f"{ordinary}@1.5",
        f"{derived}@soon",
        f"{derived}@inf",
        f"{derived}@nan",
    ):
        with pytest.raises(Refused, match="no place to go on from"):
            broker.find(Filter(), place)
    with pytest.raises(Refused, match="not a job id"):
        broker.find(Filter(), "nonsense")
