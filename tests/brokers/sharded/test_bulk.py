"""Spark's verbs over shards: slices of each, writes that are all or none, marks as one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain

import pytest

from penstock.broker.lake_mark import Gap, Mark
from penstock.broker.position import BEGINNING
from penstock.broker.shard_map import SplitWrite
from penstock.broker.slice import Selection, Slice
from penstock.broker.values import Epoch
from penstock.brokers.sharded.enqueuing import SENDER_SECONDS
from penstock.enqueue.ids import bucket_for
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.job import Job, Unique, succeeded
from penstock.testing.conformance.factories import claim, end_all, ids_of
from tests.brokers.sharded.unplugged import (
    IN_A,
    IN_B,
    Killed,
    Unplugged,
    ids_in,
    job_in,
    sharded,
)

ATTEMPTS = Selection(table="attempts")
PARTS = {"0/1": 3, "1/1": 2}


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def broker(clock, stores):
    return sharded(clock, *stores)


def staged(broker, clock, write: str = "load") -> list[Job]:
    """A write in two parts, each with jobs of both shards."""
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B, IN_A, IN_B, IN_A)]
    broker.stage(write, "0/1", jobs[:3])
    broker.stage(write, "1/1", jobs[3:])
    return jobs


def records(stores) -> list[SplitWrite]:
    return [record for store in stores for record in store.records(SplitWrite)]


def ended(broker, clock, buckets) -> None:
    for bucket in buckets:
        clock.advance(seconds=1)
        broker.enqueue([job_in(clock, bucket)])
        end_all(broker, succeeded())


@contextlib.contextmanager
def ends_at_the_commit_of(store: Unplugged, error: BaseException) -> Iterator[None]:
    """This happens when the store is to commit its parts of a write that was decided."""
    commit = store.commit_write

    def broken(write, parts, *rest):
        if "no part" in parts:
            return commit(write, parts, *rest)
        raise error

    store.commit_write = broken
    yield
    store.commit_write = commit


# Writes


def test_each_shard_commits_its_own_and_no_record_stays(broker, clock, stores):
    jobs = staged(broker, clock)

    assert broker.commit_write("load", PARTS, "first")[:2] == (5, "first")

    assert [len(ids_in(store, jobs)) for store in stores] == [3, 2]
    assert records(stores) == []
    assert broker.commit_write("load", {"0/9": 7}, "second")[:2] == (5, "first")


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("steps", range(12))
def test_killed_anywhere_the_write_is_stored_whole_or_not_at_all(
    broker, clock, stores, victim, steps
):
    jobs = staged(broker, clock)
    stores[victim].kill_at = steps
    with contextlib.suppress(Killed):
        broker.commit_write("load", PARTS, "first")
    stores[victim].kill_at = None
    decided = bool(records(stores)) or bool(ids_in(broker, jobs))

    clock.advance(seconds=SENDER_SECONDS)
    sharded(clock, *stores).recover()

    assert len(ids_in(broker, jobs)) == (5 if decided else 0)
    assert records(stores) == []
    again = sharded(clock, *stores)
    token = "first" if decided else "second"
    assert again.commit_write("load", PARTS, "second")[:2] == (5, token)
    assert sorted(ids_of(claim(broker, limit=9))) == sorted(ids_of(jobs))


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("verb", ["stage", "put", "commit_write", "clear"])
def test_an_answer_that_is_lost_stores_nothing_twice(broker, clock, stores, victim, verb):
    jobs = staged(broker, clock)
    stores[victim].lose = verb
    with contextlib.suppress(UnknownOutcome, StoreUnreachable):
        broker.commit_write("load", PARTS)
    stores[victim].lose = ""

    assert broker.commit_write("load", PARTS).jobs == 5
    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()

    assert sorted(ids_of(claim(broker, limit=9))) == sorted(ids_of(jobs))
    assert claim(broker, limit=9, worker="worker-2") == []
    assert records(stores) == []


def test_a_shard_that_is_away_gets_its_part_when_it_is_back(broker, clock, stores):
    """And Spark, which was told that the write is committed, discards nothing of it."""
    jobs = staged(broker, clock)
    with ends_at_the_commit_of(stores[1], StoreUnreachable("nobody answers")):
        assert broker.commit_write("load", PARTS).jobs == 5
    assert ids_in(broker, jobs) == [jobs[0].id, jobs[2].id, jobs[4].id]
    broker.discard("load")
    assert len(records(stores)) == 1

    clock.advance(seconds=SENDER_SECONDS)
    broker.recover()

    assert len(ids_in(broker, jobs)) == 5
    assert records(stores) == []


def test_what_was_decided_is_finished_before_what_nobody_commits_is_forgotten(
    broker, clock, stores
):
    jobs = staged(broker, clock)
    with ends_at_the_commit_of(stores[1], Killed()), pytest.raises(Killed):
        broker.commit_write("load", PARTS)
    assert len(records(stores)) == 1
    clock.advance(hours=25)

    sharded(clock, *stores).prune(clock.now() - 14 * 86400)

    assert len(ids_in(broker, jobs)) == 5


def test_while_a_shard_is_away_nothing_is_committed(broker, clock, stores):
    jobs = staged(broker, clock)
    stores[1].away = True
    with pytest.raises(StoreUnreachable, match="shard b: nobody answers"):
        broker.commit_write("load", PARTS)
    stores[1].away = False

    assert ids_in(broker, jobs) == []
    assert broker.commit_write("load", PARTS).jobs == 5


def test_a_part_that_went_missing_on_one_shard_refuses_the_write(broker, clock, stores):
    jobs = staged(broker, clock)
    stores[1].discard("load")

    with pytest.raises(Refused, match="part '0/1' should have 3 jobs, 2 are staged"):
        broker.commit_write("load", PARTS)

    assert ids_in(broker, jobs) == []
    assert records(stores) == []


def test_a_stream_has_each_epoch_once_on_every_shard(broker, clock):
    for number in range(2):
        staged(broker, clock, f"query/{number}")
        assert broker.commit_write(f"query/{number}", PARTS, "", Epoch("query", number)).jobs == 5
    assert len(claim(broker, limit=20)) == 10

    staged(broker, clock, "query/0")
    assert broker.commit_write("query/0", PARTS, "again", Epoch("query", 0))[:2] == (0, "")
    assert claim(broker, limit=20, worker="worker-2") == []


def test_a_job_that_cannot_be_where_its_key_is_cannot_be_staged(broker, clock):
    keys = (f"key-{number}" for number in range(100))
    key = next(key for key in keys if broker.shards.map.owner(bucket_for(key)) == "b")
    with pytest.raises(Refused, match="unique key"):
        broker.stage("load", "0/1", [job_in(clock, IN_A, unique=Unique(key))])


# Reads


def test_a_slice_is_of_one_shard_and_all_of_them_have_every_row_once(broker, clock):
    ended(broker, clock, (IN_A, IN_B, IN_B, IN_A, IN_B))
    reach = broker.reach(ATTEMPTS)

    parts = broker.slices(ATTEMPTS, BEGINNING, reach.position, 4)

    shards = [part.after.partition("/")[0] for part in parts]
    assert set(shards) == {"a", "b"}
    rows = [row for part in parts for batch in broker.scan(part) for row in batch.to_pylist()]
    assert sorted(row["job"] for row in rows) == sorted(
        row.job for row in broker.history() if row.kind == "attempt"
    )
    assert broker.slices(ATTEMPTS, reach.position, reach.position) == []
    jobs = broker.slices(Selection(table="jobs"), at_most=4)
    ids = chain.from_iterable(
        batch.column("id").to_pylist() for part in jobs for batch in broker.scan(part)
    )
    assert len(set(ids)) == 5


def test_it_reads_as_far_as_any_position_of_the_history(broker, clock):
    ended(broker, clock, (IN_A, IN_B, IN_B, IN_A, IN_B, IN_B))
    rows = broker.history()

    for number, row in enumerate(rows):
        reach = broker.reach(ATTEMPTS, until=row.position)
        assert reach.position == row.position.partition("/")[0]
        behind = broker.slices(ATTEMPTS, row.position, None, 2)
        assert sum(b.num_rows for part in behind for b in broker.scan(part)) == 5 - number


@pytest.mark.parametrize("at_most", [1, 2, 3, 5, 6, 7, 50])
def test_no_more_rows_than_so_many_and_it_says_whether_they_are_there(broker, clock, at_most):
    ended(broker, clock, (IN_A, IN_B, IN_B, IN_A, IN_B, IN_B))

    after, sizes = BEGINNING, []
    while True:
        reach = broker.reach(ATTEMPTS, after, at_most, patience=0)
        parts = broker.slices(ATTEMPTS, after, reach.position)
        sizes.append(sum(b.num_rows for part in parts for b in broker.scan(part)))
        assert reach.full == (sizes[-1] == at_most)
        if reach.position == after:
            break
        after = reach.position

    assert sum(sizes) == 6
    assert max(sizes) <= at_most
    assert sizes.count(at_most) >= 6 // at_most


def test_while_a_shard_is_away_no_row_is_left_out_in_silence(broker, clock, stores):
    ended(broker, clock, (IN_A, IN_B))
    stores[1].away = True

    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.reach(ATTEMPTS)
    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.slices(Selection(table="jobs"))


@pytest.mark.parametrize("ends", [("one", "a/1"), ("a/1", "two"), ("c/1", "c/2"), ("a/1", "b/2")])
def test_ends_that_no_shard_made_are_refused(broker, ends):
    with pytest.raises(Refused, match=r"is no end of a slice|are not the ends of one slice"):
        broker.scan(Slice(ATTEMPTS, *ends))


# Marks


def test_the_marks_of_a_lake_are_shown_as_one(broker, clock, stores):
    ended(broker, clock, (IN_A, IN_B, IN_B))
    stores[0].put(Mark(lake="x", position=stores[0].history()[-1].position, hold=5.0))
    told_at = clock.now()
    clock.advance(seconds=5)
    stores[1].put(Mark(lake="x", place="/srv/lake", hold=7.0))
    stores[1].put(Mark(lake="y"))

    one, other = broker.records(Mark)

    assert (one.lake, other.lake) == ("x", "y")
    assert one.position == "a=00000000000000000001,b=0"
    assert (one.hold, one.place, one.told_at) == (7.0, "/srv/lake", told_at)
    assert other.position == BEGINNING
    with pytest.raises(Refused, match="a Mark is put on each shard by itself"):
        broker.put(Mark(lake="x"))
    assert broker.clear(Mark, "x") is True
    assert [mark.lake for mark in broker.records(Mark)] == ["y"]


def test_gaps_of_shards_are_one_gap(broker, clock, stores):
    ended(broker, clock, (IN_A, IN_B, IN_B))
    for store in stores:
        store.put(Mark(lake="x", hold=0.0))
    clock.advance(days=2)
    broker.prune(clock.now() - 86400)

    [mark] = broker.records(Mark)

    assert mark.gap == Gap(BEGINNING, "a=00000000000000000002,b=00000000000000000003", 5)
