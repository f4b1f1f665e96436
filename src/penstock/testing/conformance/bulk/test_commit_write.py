"""Publish: the parts of a write that count become jobs, all of them or none, and once."""

from __future__ import annotations

import threading

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.enqueue.ids import Ids, derived_id, time_of
from penstock.errors import Refused
from penstock.job import Lane, Parcel, State, Unique, succeeded
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle, some_jobs

DAY = 86400.0


def a_parcel(clock, count: int = 5, **fields) -> Parcel:
    bodies = [b'{"args":{"n":%d}}' % number for number in range(count)]
    return Parcel(Ids(clock).first(), Lane("mail", "mail:send", **fields), bodies)


def test_published_parts_are_jobs_like_any_other(broker, clock):
    """I11: bytes in are bytes out, whichever way a job came."""
    parcel = a_parcel(clock, 130 - 2)
    rich = a_job(
        clock,
        body='{"args":{"to":"ada\\u0000","emoji":"\U0001f980"}}'.encode(),
        queue="mail",
        version=1,
        priority=-7,
        run_at=clock.now() + 90,
        key="ada",
        unique=Unique("welcome-ada", "time", 60),
        runs_on=("gpu", "linux"),
        tags={"tenant": "a", "kind": "welcome"},
        search={"to": "ada"},
        expires_at=clock.now() + 900,
        at_most_once=True,
    )
    broker.stage("write-1", "0/1", [parcel])
    broker.stage("write-1", "1/2", [rich])

    assert broker.commit_write("write-1", {"0/1": 128, "1/2": 1}) == 129

    stored = broker.get(rich.id)
    assert msgspec.structs.replace(stored, enqueued_at=rich.enqueued_at) == rich
    packed = [broker.get(job_id) for job_id in parcel.ids()]
    assert [job.body for job in packed] == list(parcel.bodies)
    assert {job.enqueued_at for job in packed} == {time_of(parcel.id)}
    assert broker.find(Filter(tags={"tenant": ("a",)})).jobs == [stored]
    [count] = broker.count()
    assert (count.queue, count.task, count.ready, count.scheduled) == ("mail", "mail:send", 128, 1)
    assert ids_of(claim(broker, 200)) == parcel.ids()


def test_only_the_parts_that_are_named_count(broker, clock):
    """I2: of two attempts at the same rows one wins; the other leaves nothing."""
    first, second, other = a_parcel(clock), a_parcel(clock), a_parcel(clock)
    broker.stage("write-1", "0/1", [first])
    broker.stage("write-1", "0/2", [second])
    broker.stage("write-2", "0/1", [other])

    assert broker.commit_write("write-1", {"0/2": 5}) == 5

    assert ids_of(claim(broker, 20)) == second.ids()
    assert broker.commit_write("write-2", {"0/1": 5}) == 5
    assert ids_of(claim(broker, 20)) == other.ids()


def test_a_write_is_published_once(broker, clock):
    """I1, I2: the answer was lost, or the epoch runs again in other parts."""
    broker.stage("query/7", "0/1", [a_parcel(clock)])
    assert broker.commit_write("query/7", {"0/1": 5}) == 5
    for job in claim(broker, 10):
        settle(broker, job, succeeded())
    broker.stage("query/7", "0/9", [a_parcel(clock, 4)])

    assert broker.commit_write("query/7", {"0/9": 4}) == 5
    assert broker.commit_write("query/7", {"0/1": 5}) == 5

    assert claim(broker, 10) == []


def test_a_part_that_is_not_as_it_was_said_to_be_refuses_the_write(broker, clock):
    """I1: whole or nothing, also when a part went missing."""
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    broker.stage("write-1", "1/2", [a_parcel(clock)])

    for parts in ({"0/1": 5, "1/2": 6}, {"0/1": 5, "1/2": 5, "2/3": 1}):
        with pytest.raises(Refused, match="staged"):
            broker.commit_write("write-1", parts)
    assert broker.count() == []

    assert broker.commit_write("write-1", {"0/1": 5, "1/2": 5}) == 10


def test_a_write_without_rows_is_published_too(broker):
    assert broker.commit_write("write-1", {}) == 0
    assert broker.commit_write("write-1", {"0/1": 0}) == 0


def test_a_part_without_rows_need_not_have_been_staged(broker, clock):
    broker.stage("write-1", "0/1", [])
    broker.stage("write-1", "1/2", [a_parcel(clock)])

    assert broker.commit_write("write-1", {"0/1": 0, "1/2": 5}) == 5


def test_ids_that_were_stored_before_are_left_as_they_are(broker, clock):
    """I1: a derived id, or a parcel of which a part was enqueued, is stored once."""
    derived = a_job(clock, id=derived_id("import", "7"))
    jobs = some_jobs(clock, 6)
    broker.enqueue([derived, *jobs[2:4]])
    for job in claim(broker, 10):
        settle(broker, job, succeeded())
    broker.stage("write-1", "0/1", [derived, *jobs])

    assert broker.commit_write("write-1", {"0/1": 7}) == 7

    assert set(ids_of(claim(broker, 10))) == {job.id for job in [*jobs[:2], *jobs[4:]]}
    assert broker.get(derived.id).state is State.SUCCEEDED


def test_an_id_in_two_parts_is_one_job(broker, clock):
    jobs, derived = some_jobs(clock, 4), a_job(clock, id=derived_id("import", "8"))
    broker.stage("write-1", "0/1", [*jobs, derived])
    broker.stage("write-1", "1/2", [*jobs[1:], derived])

    assert broker.commit_write("write-1", {"0/1": 5, "1/2": 4}) == 9

    assert sorted(ids_of(claim(broker, 20))) == sorted({job.id for job in [*jobs, derived]})


def test_published_ids_are_known_to_enqueue(broker, clock):
    jobs = [*some_jobs(clock, 4), a_job(clock, key="ada")]
    broker.stage("write-1", "0/1", jobs)
    broker.commit_write("write-1", {"0/1": 5})

    assert broker.enqueue(jobs).known == {job.id for job in jobs}


def test_a_standing_unique_job_is_left_alone(broker, clock):
    standing = a_job(clock, unique=Unique("welcome-ada"))
    broker.enqueue([standing])
    late = [a_job(clock, unique=Unique(key)) for key in ("welcome-ada", "bob", "bob")]
    broker.stage("write-1", "0/1", late)

    assert broker.commit_write("write-1", {"0/1": 3}) == 3

    assert broker.get(late[0].id) is None
    assert ids_of(claim(broker, 9)) == [standing.id, late[1].id]


def test_ids_that_the_store_has_forgotten_are_refused(broker, clock):
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    broker.stage("write-2", "0/1", [a_job(clock, key="ada")])
    clock.advance(days=15)

    for write, jobs in (("write-1", 5), ("write-2", 1)):
        with pytest.raises(Refused, match=r"old|remember"):
            broker.commit_write(write, {"0/1": jobs})
    assert broker.count() == []


def test_a_published_write_is_remembered_as_long_as_ids_are(broker, clock):
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    broker.commit_write("write-1", {"0/1": 5})
    clock.advance(days=2)

    broker.prune(clock.now() - 3 * DAY)
    assert broker.commit_write("write-1", {}) == 5

    broker.prune(clock.now() - DAY)
    assert broker.commit_write("write-1", {}) == 0


def test_a_waiting_worker_hears_of_it(broker, clock):
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    claim(broker)
    broker.wait(None, 0)
    heard = threading.Event()
    waiting = threading.Thread(target=lambda: broker.wait(None, 10) and heard.set())
    waiting.start()

    broker.commit_write("write-1", {"0/1": 5})
    waiting.join(20)

    assert heard.is_set()
    assert len(claim(broker, 10)) == 5


def test_many_that_publish_one_write_publish_it_once(broker, clock):
    """I2: two drivers that both believe the epoch is theirs."""
    parts = {f"{number}/1": 10 for number in range(6)}
    for part in parts:
        broker.stage("query/1", part, [a_parcel(clock, 6), *some_jobs(clock, 4, key="k")])
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(broker.commit_write("query/1", parts)))
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [60] * 4
    assert len(claim(broker, 100)) == 60
