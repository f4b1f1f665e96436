"""Enqueue: jobs are stored, all or none, each once however often it is sent."""

from __future__ import annotations

import math

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.values import Batch
from penstock.enqueue.ids import Ids, derived_id, time_of
from penstock.errors import Refused
from penstock.job import Lane, Parcel, State, Unique, succeeded, try_again
from penstock.testing.clock import Clock
from penstock.testing.conformance.ends import ENDS
from penstock.testing.conformance.factories import (
    NO_PATHS,
    ODD_PATHS,
    PATHS,
    a_job,
    an_id,
    claim,
    enqueue_and_claim,
    ids_of,
    settle,
    some_jobs,
)


def test_a_stored_job_is_ready_and_nothing_has_been_counted(broker, clock):
    """D3, D5, G5."""
    job = a_job(clock)

    broker.enqueue([job])

    stored = broker.get(job.id)
    assert stored is not None
    assert stored.state is State.READY
    assert (stored.attempt, stored.failures, stored.lapses, stored.repeats) == (0, 0, 0, 0)
    assert stored.worker is None
    assert stored.claimed_at is None
    assert stored.ended_at is None
    assert stored.enqueued_at == time_of(job.id)


def test_a_plain_job_has_no_time_of_its_own(broker, clock):
    job = a_job(clock)

    broker.enqueue([job])

    assert broker.get(job.id).run_at is None


def test_everything_the_caller_said_about_a_job_is_kept(broker, clock):
    """D6, B3, B20: fields come back as they were sent, bytes in are bytes out."""
    job = a_job(
        clock,
        body='{"args":{"to":"ada\\u0000","emoji":"\U0001f980"},"headers":{"trace":"1"}}'.encode(),
        queue="mail",
        version=3,
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

    broker.enqueue([job])

    stored = broker.get(job.id)
    assert msgspec.structs.replace(stored, enqueued_at=job.enqueued_at) == job


def test_every_job_of_a_parcel_is_stored_with_its_own_body(broker, clock):
    bodies = [b'{"args":{"n":%d}}' % number for number in range(5)]
    parcel = Parcel(Ids(clock).first(), Lane("mail", "mail:send", 2, 4), bodies)

    broker.enqueue([parcel])

    stored = [broker.get(job_id) for job_id in parcel.ids()]
    assert [job.body for job in stored] == bodies
    assert {job.lane for job in stored} == {parcel.lane}
    assert {job.enqueued_at for job in stored} == {time_of(parcel.id)}


def test_empty_bodies_and_no_jobs_at_all_are_fine(broker, clock):
    jobs = [a_job(clock, body=b""), a_job(clock, body=b"", tags={"a": "b"})]

    assert broker.enqueue([]).known == frozenset()
    broker.enqueue(jobs)

    assert [broker.get(job.id).body for job in jobs] == [b"", b""]


def test_one_refused_job_keeps_all_of_its_call_out(broker, clock):
    """B15: a refused job changes nothing."""
    good, tagged = a_job(clock), a_job(clock, tags={"tenant": "a"}, unique=Unique("k"))
    bad = a_job(clock, priority=101)

    with pytest.raises(Refused):
        broker.enqueue([good, tagged, bad])

    assert [broker.get(job.id) for job in (good, tagged, bad)] == [None, None, None]
    assert broker.count() == []
    assert broker.enqueue([good, tagged]).known == frozenset()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"priority": 101}, "101"),
        ({"priority": -101}, "-101"),
        ({"queue": ""}, "queue"),
        ({"queue": "a\x00b"}, "queue"),
        ({"queue": "a\nb"}, "queue"),
        ({"queue": "a" * 201}, "queue"),
        ({"task": ""}, "task"),
        ({"task": "a\x7fb"}, "task"),
        ({"task": "a\ud800b"}, "task"),
        ({"task": "a" * 201}, "task"),
        ({"body": b"x" * (256 * 1024 + 1)}, "262,?145"),
        ({"run_at": math.nan}, "nan"),
        ({"expires_at": math.inf}, "inf"),
        ({"unique": Unique("k", "noon")}, "noon"),
        ({"unique": Unique("k", "time")}, "time"),
        ({"runs_on": ("a,b",)}, "a,b"),
        ({"id": "seven"}, "seven"),
    ],
)
@pytest.mark.parametrize("tags", [{}, {"tenant": "a"}], ids=["plain", "tagged"])
def test_what_cannot_be_right_is_refused_by_name(broker, clock, fields, named, tags):
    """B15: the refusal names the value."""
    with pytest.raises(Refused, match=named):
        broker.enqueue([a_job(clock, **{"tags": tags, **fields})])

    assert broker.find(Filter()).jobs == []


@pytest.mark.parametrize("name", [*PATHS, *ODD_PATHS])
@pytest.mark.parametrize("tags", [{}, {"tenant": "a"}], ids=["plain", "tagged"])
def test_a_task_that_is_named_like_a_file_is_refused(broker, clock, name, tags):
    with pytest.raises(Refused, match="is a path"):
        broker.enqueue([a_job(clock, name, tags=tags)])

    assert broker.find(Filter()).jobs == []


@pytest.mark.parametrize("name", NO_PATHS)
def test_a_name_with_a_slash_or_a_suffix_elsewhere_is_stored(broker, clock, name):
    job = a_job(clock, name)

    broker.enqueue([job])

    assert broker.get(job.id).task == name


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 100},
        {"priority": -100},
        {"queue": "a" * 200, "task": "b" * 200},
        {"queue": "Ünïcode 🦀 'quoted\" %s"},
        {"body": b"x" * (256 * 1024)},
    ],
    ids=["highest", "lowest", "long names", "odd names", "large body"],
)
def test_what_is_just_within_the_bounds_is_stored(broker, clock, fields):
    job = a_job(clock, **fields)

    broker.enqueue([job])

    assert broker.get(job.id).body == job.body
    assert broker.get(job.id).lane == job.lane


# Sent again


def _leave_alone(broker, job):
    pass


def _take(broker, job):
    claim(broker)


@pytest.mark.parametrize("meanwhile", [_leave_alone, _take, *ENDS])
@pytest.mark.parametrize("tags", [{}, {"tenant": "a"}], ids=["plain", "tagged"])
def test_a_job_sent_again_is_left_as_it_is(broker, clock, meanwhile, tags):
    """D21, V7, B41: an enqueue sent again, also after its job has ended: one run."""
    job = a_job(clock, tags=tags)
    broker.enqueue([job])
    meanwhile(broker, job)
    before = broker.get(job.id)

    answer = broker.enqueue([job])

    assert answer.known == {job.id}
    assert broker.get(job.id) == before
    assert ids_of(claim(broker, limit=10)) == ([job.id] if meanwhile is _leave_alone else [])


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 3), (2, 5), (3, 4)])
def test_a_part_of_what_was_sent_together_is_known(broker, clock, start, stop):
    """A producer may send the rest of a list again, packed otherwise than before."""
    jobs = some_jobs(clock, 5)
    broker.enqueue(jobs)

    answer = broker.enqueue(jobs[start:stop])

    assert answer.known == set(ids_of(jobs[start:stop]))
    assert sorted(ids_of(claim(broker, limit=10))) == ids_of(jobs)


def test_what_was_not_sent_yet_is_stored_between_what_was(broker, clock):
    jobs = some_jobs(clock, 9)
    broker.enqueue(jobs[2:4])
    broker.enqueue([jobs[6]])

    answer = broker.enqueue(jobs)

    assert answer.known == {jobs[2].id, jobs[3].id, jobs[6].id}
    claimed = claim(broker, limit=20)
    assert sorted((job.id, job.body) for job in claimed) == [(job.id, job.body) for job in jobs]


def test_a_part_sent_again_while_the_rest_runs_is_known(broker, clock):
    jobs = some_jobs(clock, 4)
    broker.enqueue(jobs)
    claim(broker, limit=2)

    answer = broker.enqueue(jobs)

    assert answer.known == set(ids_of(jobs))
    assert ids_of(claim(broker, limit=10)) == ids_of(jobs[2:])


def test_a_job_named_twice_in_one_call_is_stored_once(broker, clock):
    plain, tagged = a_job(clock), a_job(clock, tags={"tenant": "a"})

    broker.enqueue([plain, tagged, plain, tagged])

    assert sorted(ids_of(claim(broker, limit=10))) == sorted([plain.id, tagged.id])


def test_a_known_job_does_not_keep_the_new_ones_out(broker, clock):
    old, new = some_jobs(clock, 2)
    broker.enqueue([old])

    answer = broker.enqueue([old, new])

    assert answer.known == {old.id}
    assert broker.get(new.id).state is State.READY


def test_an_id_older_than_what_is_remembered_is_refused(broker, clock):
    """It may have run already: refused, never run."""
    old = a_job(clock)
    clock.advance(days=15)

    with pytest.raises(Refused, match=old.id):
        broker.enqueue([old, a_job(clock)])

    assert broker.find(Filter()).jobs == []


def test_an_id_that_was_pruned_is_refused_too(broker, clock):
    job = enqueue_and_claim(broker, clock)
    settle(broker, job, succeeded())
    clock.advance(days=2)
    broker.prune(clock.now() - 86400)

    with pytest.raises(Refused, match=job.id):
        broker.enqueue([a_job(clock, id=job.id)])


def test_an_id_from_a_clock_far_ahead_is_refused(broker, clock):
    early = a_job(Clock(clock.now() + 61))

    with pytest.raises(Refused, match="ahead"):
        broker.enqueue([early])


@pytest.mark.parametrize("tags", [{}, {"tenant": "a"}], ids=["plain", "tagged"])
def test_a_job_without_a_time_is_due_at_once_even_from_a_clock_a_little_ahead(broker, clock, tags):
    """D5, V5: none means as soon as possible."""
    job = a_job(Clock(clock.now() + 30), tags=tags)

    broker.enqueue([job])

    assert ids_of(claim(broker)) == [job.id]


def test_a_derived_id_has_no_age_and_is_stored_once(broker, clock):
    """D60: whoever derives the same id makes the same job."""
    job = a_job(clock, id=derived_id("nightly", "2026-11-15"))

    assert broker.enqueue([job]).known == frozenset()
    assert broker.enqueue([job, a_job(clock)]).known == {job.id}

    assert broker.get(job.id).enqueued_at == pytest.approx(clock.now())
    assert len(claim(broker, limit=10)) == 2


def test_a_job_value_that_has_run_before_starts_from_nothing(broker, clock):
    ran = enqueue_and_claim(broker, clock)
    settle(broker, ran, try_again("boom", clock.now() + 60))
    copy = msgspec.structs.replace(broker.get(ran.id), id=an_id(clock), run_at=None)

    broker.enqueue([copy])

    stored = broker.get(copy.id)
    assert (stored.state, stored.attempt, stored.failures) == (State.READY, 0, 0)
    assert (stored.reason, stored.error) == (None, None)


def test_a_job_for_a_far_day_is_stored(broker, clock):
    """D38, D47, V5."""
    job = a_job(clock, run_at=clock.now() + 365 * 86400)

    broker.enqueue([job])

    assert broker.get(job.id).run_at == job.run_at
    assert claim(broker) == []


# Batches


def test_a_batch_counts_its_rows_and_tells_how_many(broker, clock):
    """B50: a bulk enqueue goes on where it stopped."""
    first, second = some_jobs(clock, 3), some_jobs(clock, 2, tags={"tenant": "a"})

    assert broker.enqueue(first, batch=Batch("import-7")).batch == 3
    assert broker.enqueue(second, batch=Batch("import-7", 3)).batch == 5
    assert broker.enqueue([], batch=Batch("import-7")).batch == 5
    assert broker.enqueue([], batch=Batch("import-8")).batch == 0

    assert len(claim(broker, limit=10)) == 5


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_batch_that_goes_on_from_another_row_is_refused(broker, clock, count):
    broker.enqueue(some_jobs(clock, 3), batch=Batch("import-7"))
    more = a_job(clock)

    with pytest.raises(Refused, match=f"import-7.*{count}"):
        broker.enqueue([more], batch=Batch("import-7", count))

    assert broker.get(more.id) is None
    assert broker.enqueue([], batch=Batch("import-7")).batch == 3


def test_a_refused_job_does_not_count_on_its_batch(broker, clock):
    with pytest.raises(Refused):
        broker.enqueue([a_job(clock, priority=500)], batch=Batch("import-7"))

    assert broker.enqueue([], batch=Batch("import-7")).batch == 0


# Joining a transaction


def test_a_connection_that_is_not_of_this_store_is_refused(broker, clock):
    """V4, C14: refused before anything is written."""
    job = a_job(clock)

    with pytest.raises(Refused):
        broker.enqueue([job], connection=object())

    assert broker.get(job.id) is None
