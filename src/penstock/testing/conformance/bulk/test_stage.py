"""Stage: jobs are kept unseen, as parts of a write, until that is published."""

from __future__ import annotations

import math

import pytest

from penstock.broker.filter import Filter
from penstock.enqueue.ids import Ids
from penstock.errors import Refused
from penstock.job import Lane, Parcel
from penstock.testing.conformance.factories import a_job, claim, some_jobs

pytestmark = pytest.mark.needs("bulk")

DAY = 86400.0


def test_nothing_staged_is_claimed_counted_or_found(broker, clock):
    """I2: readers and workers see a write when it is published, not before."""
    plain = some_jobs(clock, 3)
    tagged = a_job(clock, tags={"tenant": "a"}, key="ada")

    broker.stage("write-1", "0/1", [*plain, tagged])

    assert claim(broker, 10) == []
    assert broker.count() == []
    assert broker.find(Filter()).jobs == []
    assert broker.find(Filter(tags={"tenant": ("a",)})).jobs == []
    assert broker.get(plain[0].id) is None
    assert broker.history() == []


def test_what_could_not_be_enqueued_cannot_be_staged(broker, clock):
    with pytest.raises(Refused, match="not a time"):
        broker.stage("write-1", "0/1", [a_job(clock, run_at=math.inf)])
    with pytest.raises(Refused, match="limit is"):
        broker.stage("write-1", "0/1", [a_job(clock, body=b"x" * 300_000)])
    with pytest.raises(Refused, match="priority 200"):
        broker.stage("write-1", "0/1", [a_job(clock, priority=200)])
    with pytest.raises(Refused, match="is a path"):
        broker.stage("write-1", "0/1", [a_job(clock, "/tmp/x.py:f")])
    old = a_job(clock)
    clock.advance(days=20)
    with pytest.raises(Refused, match="longer than ids are"):
        broker.stage("write-1", "0/1", [old])

    assert broker.commit_write("write-1", {}).jobs == 0


@pytest.mark.parametrize("name", ["", "x" * 201, "nu\x00l"])
def test_a_write_and_a_part_have_names_that_can_be_kept(broker, clock, name):
    with pytest.raises(Refused, match="write"):
        broker.stage(name, "0/1", some_jobs(clock, 1))
    with pytest.raises(Refused, match="part"):
        broker.stage("write-1", name, some_jobs(clock, 1))


def test_the_same_call_twice_is_once(broker, clock):
    """I1: an answer that was lost is asked for again."""
    jobs = [*some_jobs(clock, 3), a_job(clock, key="ada")]
    parcel = Parcel(Ids(clock).first(), Lane("mail", "mail:send"), [b"{}"] * 4)

    for _ in range(2):
        broker.stage("write-1", "0/1", [*jobs, parcel])

    assert broker.commit_write("write-1", {"0/1": 8}).jobs == 8
    assert len(claim(broker, 20)) == 8


def test_a_part_may_come_in_many_calls(broker, clock):
    for number in range(3):
        broker.stage("write-1", "0/1", some_jobs(clock, 2, priority=number))

    assert broker.commit_write("write-1", {"0/1": 6}).jobs == 6


def test_without_jobs_it_says_how_many_a_part_has(broker, clock):
    parcel = Parcel(Ids(clock).first(), Lane("mail", "mail:send"), [b"{}"] * 4)
    assert broker.stage("write-1", "0/1", []) == 0
    for _ in range(2):
        assert broker.stage("write-1", "0/1", [parcel, *some_jobs(clock, 3, key="k")]) == 0

    assert broker.stage("write-1", "0/1", []) == 10
    assert broker.stage("write-1", "1/1", []) == 0
    assert broker.commit_write("write-1", {"0/1": 10}).jobs == 10
    assert broker.stage("write-1", "0/1", []) == 0


def test_what_nobody_publishes_is_forgotten_after_a_day(broker, clock):
    """A zombie that stages after its write was published leaves nothing behind for ever."""
    broker.commit_write("write-1", {})
    broker.stage("write-1", "0/1", some_jobs(clock, 2))
    clock.advance(hours=25)

    broker.prune(clock.now() - 14 * DAY)

    broker.discard("another")
    with pytest.raises(Refused, match="2 jobs, 0 are staged"):
        broker.commit_write("write-2", {"0/1": 2})
    assert broker.commit_write("write-1", {"0/1": 2}).jobs == 0
    assert claim(broker, 5) == []


@pytest.mark.needs("one place")
def test_a_write_that_goes_on_for_days_keeps_its_first_part(broker, clock):
    broker.stage("write-1", "0/1", some_jobs(clock, 2))
    clock.advance(hours=20)
    broker.stage("write-1", "1/2", some_jobs(clock, 2))
    clock.advance(hours=20)

    broker.prune(clock.now() - 14 * DAY)

    assert broker.commit_write("write-1", {"0/1": 2, "1/2": 2}).jobs == 4


def test_what_is_staged_is_no_row_that_prune_counts(broker, clock):
    broker.stage("write-1", "0/1", some_jobs(clock, 2))
    clock.advance(days=2)

    assert broker.prune(clock.now() - 14 * DAY) == 0
