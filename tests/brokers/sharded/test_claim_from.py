"""A client that takes jobs from some of the shards, and does all else on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.app.settings import anchor
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.testing.conformance.factories import claim, ids_of
from tests.brokers.sharded.unplugged import IN_A, IN_B, job_in


@pytest.fixture
def half(clock, sqlite_shards: str):
    broker = open_broker(f"{sqlite_shards}?claim=b", clock)
    yield broker
    broker.close()


@pytest.fixture
def whole(clock, sqlite_shards: str):
    broker = open_broker(sqlite_shards, clock)
    yield broker
    broker.close()


def test_it_takes_the_jobs_of_its_part_alone(half, clock):
    """V33."""
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B) * 5]
    half.enqueue(jobs)

    taken = claim(half, limit=50)

    assert {half.shards.of(job.id).name for job in taken} == {"b"}
    assert len(taken) == 5
    assert sum(count.ready for count in half.count()) == 5
    assert claim(half, limit=50) == []


def test_two_halves_are_the_whole(half, whole, clock, sqlite_shards: str):
    other = open_broker(f"{sqlite_shards}?claim=a", clock)
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B) * 5]
    whole.enqueue(jobs)

    taken = claim(half, limit=50) + claim(other, limit=50)

    assert sorted(ids_of(taken)) == sorted(ids_of(jobs))
    other.close()


def test_what_moved_out_of_its_part_is_settled_where_it_is(half, whole, clock):
    half.enqueue([job_in(clock, IN_B), job_in(clock, IN_B)])
    taken = claim(half, limit=2)
    whole.moves.move([IN_B], "a")
    whole.enqueue([job_in(clock, IN_B)])

    assert half.settle([(job, succeeded()) for job in taken]) == [True, True]
    assert claim(half, limit=9) == []


def test_a_shard_that_the_file_does_not_name_is_refused(sqlite_shards: str, tmp_path: Path):
    with pytest.raises(Refused, match="the file of shards names no 'c'; there are a, b"):
        open_broker(f"{sqlite_shards}?claim=b,c")
    with pytest.raises(Refused, match=r"with \?claim=a,b to take jobs"):
        open_broker(f"{sqlite_shards}?only=b")
    url = "shards:///x/shards.toml?claim=a,b"
    assert anchor(url, tmp_path) == f"shards:///{tmp_path}/x/shards.toml?claim=a,b"
