"""A client that takes jobs from some of the shards, and does all else on all of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.app.settings import anchor
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_worker, claim, ids_of
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


def test_why_says_that_no_worker_takes_jobs_from_its_shard(half, whole, clock, sqlite_shards: str):
    ready, elsewhere = job_in(clock, IN_A), job_in(clock, IN_B)
    whole.enqueue([ready, elsewhere])
    half.renew([a_worker()])

    why = whole.why(ready.id)

    assert why.cause == "no_shard"
    assert "on the shard 'a', and no live worker takes jobs from there" in why.sentence
    assert "?claim=b. Start one without ?claim, or with ?claim=a." in why.sentence
    assert whole.why(elsewhere.id).cause == "next"
    assert [row.shards for row in whole.workers()] == [("b",)]
    # A claim writes the row as well.
    claim(half, limit=1)
    assert whole.why(ready.id).cause == "no_shard"

    whole.renew([a_worker("another", tasks={"of another task": 1})])
    assert whole.why(ready.id).cause == "no_shard"
    with closing(open_broker(f"{sqlite_shards}?claim=a", clock)) as other:
        other.renew([a_worker("worker-2")])
    assert whole.why(ready.id).cause == "next"


def test_why_says_first_what_is_wrong_everywhere(half, whole, clock):
    job = job_in(clock, IN_A)
    whole.enqueue([job])
    half.renew([a_worker(queues=("mail",))])
    assert whole.why(job.id).cause == "no_queue"

    whole.put(Rule(RuleKind.PAUSE, job.queue, None, "ada", "closed"))
    assert whole.why(job.id).cause == "paused"


def test_a_shard_that_the_file_does_not_name_is_refused(sqlite_shards: str, tmp_path: Path):
    with pytest.raises(Refused, match="the file of shards names no 'c'; there are a, b"):
        open_broker(f"{sqlite_shards}?claim=b,c")
    with pytest.raises(Refused, match=r"with \?claim=a,b to take jobs"):
        open_broker(f"{sqlite_shards}?only=b")
    url = "shards:///x/shards.toml?claim=a,b"
    assert anchor(url, tmp_path) == f"shards:///{tmp_path}/x/shards.toml?claim=a,b"
