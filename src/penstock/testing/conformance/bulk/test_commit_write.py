"""Publish: the parts of a write that count become jobs, all of them or none, and once."""

from __future__ import annotations

import threading

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.values import UNNAMED, Epoch
from penstock.enqueue.ids import Ids, bucket_for, derived_id, in_bucket, time_of
from penstock.errors import Refused
from penstock.job import Lane, Parcel, State, Unique, succeeded
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle, some_jobs

pytestmark = pytest.mark.needs("bulk")

DAY = 86400.0


def a_parcel(clock, count: int = 5, **fields) -> Parcel:
    bodies = [b'{"args":{"n":%d}}' % number for number in range(count)]
    return Parcel(Ids(clock).first(), Lane("mail", "mail:send", **fields), bodies)


def at_home(job_id: str, key: str) -> str:
    """The id in the bucket of this key."""
    return in_bucket(job_id, bucket_for(key))


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

    assert broker.commit_write("write-1", {"0/1": 128, "1/2": 1}).jobs == 129

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

    assert broker.commit_write("write-1", {"0/2": 5}).jobs == 5

    assert ids_of(claim(broker, 20)) == second.ids()
    assert broker.commit_write("write-2", {"0/1": 5}).jobs == 5
    assert ids_of(claim(broker, 20)) == other.ids()


def test_a_write_is_published_once(broker, clock):
    """I1, I2: the answer was lost, or the epoch runs again in other parts."""
    broker.stage("query/7", "0/1", [a_parcel(clock)])
    assert broker.commit_write("query/7", {"0/1": 5}).jobs == 5
    for job in claim(broker, 10):
        settle(broker, job, succeeded())
    broker.stage("query/7", "0/9", [a_parcel(clock, 4)])

    assert broker.commit_write("query/7", {"0/9": 4}).jobs == 5
    assert broker.commit_write("query/7", {"0/1": 5}).jobs == 5

    assert claim(broker, 10) == []


def test_a_part_that_is_not_as_it_was_said_to_be_refuses_the_write(broker, clock):
    """I1: whole or nothing, also when a part went missing."""
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    broker.stage("write-1", "1/2", [a_parcel(clock)])

    for parts in ({"0/1": 5, "1/2": 6}, {"0/1": 5, "1/2": 5, "2/3": 1}):
        with pytest.raises(Refused, match="staged"):
            broker.commit_write("write-1", parts)
    assert broker.count() == []

    assert broker.commit_write("write-1", {"0/1": 5, "1/2": 5}).jobs == 10


def test_a_write_without_rows_is_published_too(broker):
    assert broker.commit_write("write-1", {}).jobs == 0
    assert broker.commit_write("write-1", {"0/1": 0}).jobs == 0


def test_a_part_without_rows_need_not_have_been_staged(broker, clock):
    broker.stage("write-1", "0/1", [])
    broker.stage("write-1", "1/2", [a_parcel(clock)])

    assert broker.commit_write("write-1", {"0/1": 0, "1/2": 5}).jobs == 5


def test_ids_that_were_stored_before_are_left_as_they_are(broker, clock):
    """I1: a derived id, or a parcel of which a part was enqueued, is stored once."""
    derived = a_job(clock, id=derived_id("import", "7"))
    jobs = some_jobs(clock, 6)
    broker.enqueue([derived, *jobs[2:4]])
    for job in claim(broker, 10):
        settle(broker, job, succeeded())
    broker.stage("write-1", "0/1", [derived, *jobs])

    assert broker.commit_write("write-1", {"0/1": 7}).jobs == 7

    assert set(ids_of(claim(broker, 10))) == {job.id for job in [*jobs[:2], *jobs[4:]]}
    assert broker.get(derived.id).state is State.SUCCEEDED


def test_derived_ids_that_others_stored_with_another_body_are_told(broker, clock):
    """S3: between the look at what is stored and the commit, another may have stored it."""
    ids = [derived_id("import", str(number)) for number in range(4)]
    broker.enqueue([a_job(clock, id=ids[0], body=b'{"args":{"n":0}}')])
    settle(broker, claim(broker)[0], succeeded())
    broker.enqueue([a_job(clock, id=id, body=b'{"args":{"n":0}}') for id in ids[1:3]])
    bodies = [b'{"args":{"n":1}}', b'{"args":{"n":1}}', b'{"args":{"n":0}}', b'{"args":{"n":1}}']
    rows = [a_job(clock, id=id, body=body) for id, body in zip(ids, bodies, strict=True)]
    broker.stage("write-1", "0/1", rows)
    twice = [a_job(clock, id=ids[3], body=b'{"args":{"n":2}}', version=2)]
    broker.stage("write-1", "1/1", twice)

    done = broker.commit_write("write-1", {"0/1": 4, "1/1": 1})

    assert done.jobs == 5
    assert sorted(job.id for job in done.left_out) == sorted([ids[0], ids[1], ids[3]])
    stored = {job.id: job.body for job in (broker.get(id) for id in ids)}
    for job in done.left_out:
        assert stored[job.id] != job.body
    assert broker.commit_write("write-1", {}).left_out == ()


def test_many_keyed_jobs_are_as_they_were_given(broker, clock):
    """I11: what is stored by one statement for all is what a job by itself would be."""
    jobs = [
        a_job(clock, id=Ids(clock).first(), key=f"k{number % 7}", **fields)
        for number in range(20)
        for fields in (
            {},
            {"run_at": clock.now() + 3600 + number},
            {"tags": {"tenant": f"t{number}", "detached": "yes"}},
            {"search": {"to": f"n{number}"}, "at_most_once": True},
        )
    ]
    for number in range(20):
        fields = {"expires_at": clock.now() + 900, "unique": Unique(f"u{number}", "time", 60)}
        jobs.append(a_job(clock, id=at_home(Ids(clock).first(), f"u{number}"), key="k", **fields))
    broker.stage("write-1", "0/1", jobs)

    broker.commit_write("write-1", {"0/1": 100})

    for job in jobs:
        stored = broker.get(job.id)
        due = stored.run_at if job.run_at is None else job.run_at
        assert stored == msgspec.structs.replace(job, run_at=due, enqueued_at=time_of(job.id))
    [count] = broker.count()
    assert (count.ready, count.scheduled) == (80, 20)
    assert len(broker.find(Filter(tags={"tenant": ("t3",)})).jobs) == 1
    assert broker.enqueue([a_job(clock, unique=Unique("u3"))]).standing
    assert len(broker.history(None, kind="event")) == 20
    assert len(claim(broker, 200)) >= 60


def test_a_known_job_takes_no_unique_key(broker, clock):
    job = a_job(clock, id=at_home(derived_id("import", "9"), "once"), unique=Unique("once"))
    broker.enqueue([job])
    settle(broker, claim(broker)[0], succeeded())
    broker.stage("write-1", "0/1", [job])

    broker.commit_write("write-1", {"0/1": 1})

    assert claim(broker, 5) == []
    assert broker.enqueue([a_job(clock, unique=Unique("once"))]).standing == {}


def test_an_id_in_two_parts_is_one_job(broker, clock):
    jobs, derived = some_jobs(clock, 4), a_job(clock, id=derived_id("import", "8"))
    broker.stage("write-1", "0/1", [*jobs, derived])
    broker.stage("write-1", "1/2", [*jobs[1:], derived])

    assert broker.commit_write("write-1", {"0/1": 5, "1/2": 4}).jobs == 9

    assert sorted(ids_of(claim(broker, 20))) == sorted({job.id for job in [*jobs, derived]})


def test_published_ids_are_known_to_enqueue(broker, clock):
    jobs = [*some_jobs(clock, 4), a_job(clock, key="ada")]
    broker.stage("write-1", "0/1", jobs)
    broker.commit_write("write-1", {"0/1": 5})

    assert broker.enqueue(jobs).known == {job.id for job in jobs}


@pytest.mark.parametrize("apart", [False, True])
def test_a_standing_unique_job_is_left_alone(broker, clock, apart):
    """Whether the ids are of one run, or each the first of its own."""
    standing = a_job(clock, unique=Unique("welcome-ada"))
    broker.enqueue([standing])
    ids = Ids(clock)
    late = [
        a_job(clock, id=at_home(ids.first() if apart else ids.next(), key), unique=Unique(key))
        for key in ("welcome-ada", "bob", "bob")
    ]
    broker.stage("write-1", "0/1", late)

    assert broker.commit_write("write-1", {"0/1": 3}).jobs == 3

    assert broker.get(late[0].id) is None
    assert set(ids_of(claim(broker, 9))) == {standing.id, late[1].id}


def test_ids_that_the_store_has_forgotten_are_refused(broker, clock):
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    broker.stage("write-2", "0/1", [a_job(clock, key="ada")])
    clock.advance(days=15)

    for write, jobs in (("write-1", 5), ("write-2", 1)):
        with pytest.raises(Refused, match=r"old|remember"):
            broker.commit_write(write, {"0/1": jobs})
    assert broker.count() == []


# REQUIREMENTS S2
def test_a_published_write_is_remembered_for_ever(broker, clock):
    """S1: what is asked for again years later is still known."""
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    broker.commit_write("write-1", {"0/1": 5}, "first")
    for job in claim(broker, 10):
        settle(broker, job, succeeded())
    clock.advance(days=800)
    broker.prune(clock.now() - DAY)
    broker.stage("write-1", "0/2", [a_parcel(clock)])

    assert broker.commit_write("write-1", {"0/2": 5}, "second")[:2] == (5, "first")
    assert claim(broker, 10) == []


def test_a_write_without_a_name_is_remembered_as_long_as_ids_are(broker, clock):
    """Nobody can ask for it again: a row each would grow for ever."""
    write = f"{UNNAMED}7"
    broker.stage(write, "0/1", [a_parcel(clock)])
    broker.commit_write(write, {"0/1": 5})
    clock.advance(days=2)

    broker.prune(clock.now() - 3 * DAY)
    assert broker.commit_write(write, {}).jobs == 5

    broker.prune(clock.now() - DAY)
    assert broker.commit_write(write, {}).jobs == 0


def test_the_token_of_a_write_is_that_of_the_call_that_committed_it(broker, clock):
    """Whoever repeats a write learns which try has won, and finishes what it left behind."""
    broker.stage("write-1", "0/1", [a_parcel(clock)])
    assert broker.commit_write("write-1", {"0/1": 5}, "first")[:2] == (5, "first")

    assert broker.commit_write("write-1", {}, "second")[:2] == (5, "first")
    assert broker.commit_write("write-2", {}, "second")[:2] == (0, "second")


def test_of_a_stream_the_last_epoch_stands_for_all_before_it(broker, clock):
    """S4: an epoch is written once, also by a query that was stopped for years."""
    for number in range(3):
        broker.stage(f"query/{number}", "0/1", [a_parcel(clock, number + 1)])
        done = broker.commit_write(
            f"query/{number}", {"0/1": number + 1}, f"try {number}", Epoch("query", number)
        )
        assert done[:2] == (number + 1, f"try {number}")
    for job in claim(broker, 10):
        settle(broker, job, succeeded())
    clock.advance(days=800)
    broker.prune(clock.now() - DAY)
    for number in range(3):
        broker.stage(f"query/{number}", "0/2", [a_parcel(clock, 4)])

    again = [
        broker.commit_write(f"query/{number}", {"0/2": 4}, "again", Epoch("query", number))[:2]
        for number in range(3)
    ]
    assert again == [(0, ""), (0, ""), (3, "try 2")]
    assert claim(broker, 10) == []
    broker.stage("other/0", "0/1", [a_parcel(clock, 4)])
    assert broker.commit_write("other/0", {"0/1": 4}, epoch=Epoch("other", 0)).jobs == 4


def test_an_epoch_that_is_refused_leaves_the_one_before(broker, clock):
    broker.stage("query/0", "0/1", [a_parcel(clock, 3)])
    broker.commit_write("query/0", {"0/1": 3}, "first", Epoch("query", 0))

    with pytest.raises(Refused, match="staged"):
        broker.commit_write("query/1", {"0/1": 7}, "second", Epoch("query", 1))

    assert broker.commit_write("query/0", {}, "third", Epoch("query", 0))[:2] == (3, "first")


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
    parts = {f"{number}/1": 11 for number in range(6)}
    for part in parts:
        row = a_job(clock, id=derived_id("row", part), key="k")
        broker.stage("query/1", part, [a_parcel(clock, 6), *some_jobs(clock, 4, key="k"), row])
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(broker.commit_write("query/1", parts).jobs))
        for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [66] * 4
    assert len(claim(broker, 100)) == 66


def test_many_writes_of_the_same_ids_store_each_once(broker, clock):
    """I2: two drivers write the same rows at the same moment, each under a name of its own."""
    for number in range(4):
        rows = [a_job(clock, id=derived_id("row", str(n)), key="k") for n in range(30)]
        broker.stage(f"write-{number}", "0/1", rows[number:] + rows[:number])
    answers: list[tuple[int, int]] = []

    def commit(number: int) -> None:
        done = broker.commit_write(f"write-{number}", {"0/1": 30})
        answers.append((done.jobs, len(done.left_out)))

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [(30, 0)] * 4
    assert len(claim(broker, 200)) == 30
