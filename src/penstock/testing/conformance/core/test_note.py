"""Note: what a running job leaves behind, if it is still the one that runs."""

from __future__ import annotations

import json

import pytest

from penstock.broker.views import Note
from penstock.job import put_back, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    claim,
    enqueue_and_claim,
    history_of,
    settle,
    some_jobs,
)


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


@pytest.mark.parametrize("kind", ["progress", "snapshot", "step", "log", "application"])
def test_a_note_is_kept_with_the_job(broker, clock, fields, kind):
    job = enqueue_and_claim(broker, clock, **fields)

    assert broker.note(job, Note(kind, "name", b'{"n":1}', clock.now() - 1))

    assert broker.notes(job.id) == [Note(kind, "name", b'{"n":1}', clock.now() - 1)]


def test_a_note_without_a_time_has_the_store_s(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    broker.note(job, Note("step", "a"))

    assert broker.notes(job.id)[0].at == clock.now()


def test_the_latest_of_a_kind_and_name_is_kept(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    for number in range(3):
        clock.advance(seconds=1)
        broker.note(job, Note("step", "a", b"%d" % number))
        broker.note(job, Note("step", "b", b"%d" % (10 + number)))

    assert [(note.name, note.value) for note in broker.notes(job.id)] == [
        ("a", b"2"),
        ("b", b"12"),
    ]


def test_a_stale_attempt_leaves_nothing_behind(broker, clock, fields):
    """The fence holds for notes as well."""
    stale = enqueue_and_claim(broker, clock, **fields)
    settle(broker, stale, put_back("limit"))

    assert not broker.note(stale, Note("snapshot", value=b"1"))
    [current] = claim(broker)
    assert not broker.note(stale, Note("snapshot", value=b"2"))
    assert broker.note(current, Note("snapshot", value=b"3"))

    assert [note.value for note in broker.notes(stale.id)] == [b"3"]


def test_a_job_that_does_not_run_cannot_be_noted_upon(broker, clock, fields):
    ready = a_job(clock, **fields)
    broker.enqueue([ready])
    assert not broker.note(ready, Note("log", "1"))
    [job] = claim(broker)
    settle(broker, job, succeeded())

    assert not broker.note(job, Note("log", "1"))
    assert not broker.note(a_job(clock, **fields), Note("event", "x"))

    assert broker.notes(job.id) == []


def test_notes_outlive_the_attempt(broker, clock, fields):
    """A12, A35: a killed job is resumed from its last snapshot."""
    job = enqueue_and_claim(broker, clock, **fields)
    broker.note(job, Note("snapshot", value=b'{"row":500}'))
    broker.recover(dead="worker-1")
    [again] = claim(broker, worker="worker-2")

    assert [note.value for note in broker.notes(again.id, "snapshot")] == [b'{"row":500}']
    settle(broker, again, succeeded())

    assert len(broker.notes(again.id)) == 1


def test_each_job_has_its_own_notes(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 2, **fields))
    first, second = claim(broker, limit=2)

    broker.note(first, Note("log", "1", b'"first"'))
    broker.note(second, Note("log", "1", b'"second"'))

    assert [note.value for note in broker.notes(first.id)] == [b'"first"']


@pytest.mark.parametrize("kind", ["progress", "event"])
def test_progress_and_events_are_in_the_history(broker, clock, fields, kind):
    """A11: how far, and what happened on the way."""
    job = enqueue_and_claim(broker, clock, **fields)

    broker.note(job, Note(kind, "half", b'{"fraction":0.5}', clock.now() - 2))

    [event] = history_of(broker, job.id)
    assert (event.kind, event.at, event.attempt) == (kind, clock.now() - 2, 1)
    assert json.loads(event.data) == {"name": "half", "value": {"fraction": 0.5}}


def test_progress_that_is_not_told_is_kept_with_the_job_alone(broker, clock, fields):
    """A task that reports for days would fill the history."""
    job = enqueue_and_claim(broker, clock, **fields)

    assert broker.note(job, Note("progress", "", b'{"fraction":0.5}', told=False))

    assert history_of(broker, job.id) == []
    assert [note.value for note in broker.notes(job.id)] == [b'{"fraction":0.5}']


def test_an_event_is_in_the_history_alone(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)

    broker.note(job, Note("event", "sent"))
    broker.note(job, Note("event", "sent"))

    assert broker.notes(job.id) == []
    assert len(history_of(broker, job.id)) == 2


@pytest.mark.parametrize("kind", ["snapshot", "step", "log"])
def test_the_other_kinds_are_not_in_the_history(broker, clock, fields, kind):
    job = enqueue_and_claim(broker, clock, **fields)

    broker.note(job, Note(kind, "x"))

    assert history_of(broker, job.id) == []


def test_a_noted_job_is_settled_like_any_other(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 3, **fields))
    jobs = claim(broker, limit=3)
    broker.note(jobs[1], Note("progress", value=b"0.5"))

    assert broker.settle([(job, succeeded()) for job in jobs]) == [True] * 3
