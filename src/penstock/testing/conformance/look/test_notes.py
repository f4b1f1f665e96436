"""Notes: what a job noted, oldest first."""

from __future__ import annotations

from penstock.broker.views import Note
from penstock.testing.conformance.factories import a_job, enqueue_and_claim


def test_notes_come_oldest_first(broker, clock):
    job = enqueue_and_claim(broker, clock)
    now = clock.now()
    for kind, name, at in [("log", "2", now + 2), ("step", "a", now + 1), ("log", "1", now)]:
        broker.note(job, Note(kind, name, at=at))

    assert [note.name for note in broker.notes(job.id)] == ["1", "a", "2"]


def test_notes_of_the_same_moment_come_as_they_were_made(broker, clock):
    job = enqueue_and_claim(broker, clock)
    names = [f"{letter}{number}" for number in range(50) for letter in "zcam"]
    for name in names:
        broker.note(
            job, Note("log", name, b'"a line as long as lines of a log are, or a little longer"')
        )

    assert [note.name for note in broker.notes(job.id)] == names


def test_one_kind_can_be_asked_for(broker, clock):
    job = enqueue_and_claim(broker, clock)
    for kind in ("log", "step", "snapshot", "progress"):
        broker.note(job, Note(kind, kind))

    assert [note.name for note in broker.notes(job.id, "step")] == ["step"]
    assert broker.notes(job.id, "event") == []


def test_a_job_without_notes_has_none(broker, clock):
    job = enqueue_and_claim(broker, clock)

    assert broker.notes(job.id) == []
    assert broker.notes(a_job(clock).id) == []
