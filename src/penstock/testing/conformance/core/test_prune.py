"""Prune: what ended long enough ago is forgotten; what has not ended never is."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.queue_options import FOREVER
from penstock.broker.values import Batch
from penstock.broker.views import Note
from penstock.enqueue.ids import derived_id, lasting_id
from penstock.errors import Refused
from penstock.job import Outcome, State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    begun,
    claim,
    enqueue_and_claim,
    history_of,
    settle,
    some_jobs,
)

DAY = 86400


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


@pytest.mark.parametrize(
    "outcome",
    [succeeded(b"1"), failed("x"), Outcome(State.CANCELLED, "cancelled")],
    ids=lambda outcome: outcome.state,
)
def test_jobs_that_ended_before_are_forgotten_with_their_history(broker, clock, fields, outcome):
    """C5: kept for so many days."""
    old = enqueue_and_claim(broker, clock, **fields)
    settle(broker, old, begun(outcome, clock.now()))
    clock.advance(days=2)
    young = enqueue_and_claim(broker, clock, **fields)
    settle(broker, young, begun(outcome, clock.now()))

    assert broker.prune(clock.now() - DAY) >= 2

    assert broker.get(old.id) is None
    assert history_of(broker, old.id) == []
    assert broker.get(young.id).state is outcome.state
    assert len(history_of(broker, young.id)) == 1
    assert [job.id for job in broker.find(Filter()).jobs] == [young.id]


def test_the_retention_counts_from_the_end_of_a_job(broker, clock, fields):
    """V56: one that waited for weeks is kept as long as any other."""
    job = a_job(clock, **fields)
    broker.enqueue([job])
    clock.advance(days=20)
    [held] = claim(broker)
    clock.advance(hours=1)
    settle(broker, held, begun(succeeded(b"1"), clock.now() - 3600))

    broker.prune(clock.now() - DAY)
    assert broker.get(job.id).state is State.SUCCEEDED
    assert len(history_of(broker, job.id)) == 1
    clock.advance(days=2)
    broker.prune(clock.now() - DAY)

    assert broker.get(job.id) is None


def test_what_has_not_ended_is_never_pruned(broker, clock, fields):
    """D37: paused, scheduled and running jobs outlive every retention."""
    running, ready, scheduled = some_jobs(clock, 3, **fields)
    broker.enqueue([running])
    claim(broker)
    broker.enqueue([ready, a_job(clock, id=scheduled.id, run_at=clock.now() + 90 * DAY)])
    for _ in range(3):
        clock.advance(days=10)
        broker.renew([a_worker()])
        broker.prune(clock.now() - DAY)

    assert broker.get(running.id).state is State.RUNNING
    assert broker.get(ready.id).state is State.READY
    assert broker.get(scheduled.id).state is State.READY
    assert [job.id for job in claim(broker, limit=5)] == [ready.id]


def test_nothing_old_means_nothing_pruned(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, succeeded())

    assert broker.prune(clock.now() - DAY) == 0

    assert broker.get(job.id).state is State.SUCCEEDED


def test_an_empty_store_can_be_pruned(broker, clock):
    assert broker.prune(clock.now()) == 0


def test_notes_go_with_their_job(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.note(job, Note("log", "1"))
    settle(broker, job, succeeded())
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert broker.notes(job.id) == []


def test_notes_of_a_job_that_still_runs_stay(broker, clock, fields):
    job = enqueue_and_claim(broker, clock, **fields)
    broker.note(job, Note("snapshot", value=b"1"))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert [note.value for note in broker.notes(job.id)] == [b"1"]


def test_an_id_is_remembered_as_long_as_it_could_be_sent_again(broker, clock, fields):
    """D21: a pruned job is not run a second time by a late re-send."""
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, Outcome(State.SUCCEEDED, keep=False))
    clock.advance(hours=12)
    broker.prune(clock.now() - DAY)
    assert broker.enqueue([a_job(clock, id=job.id, **fields)]).known == {job.id}

    clock.advance(days=1)
    broker.prune(clock.now() - DAY)

    with pytest.raises(Refused):
        broker.enqueue([a_job(clock, id=job.id, **fields)])
    assert claim(broker) == []


def test_old_batches_are_forgotten(broker, clock):
    broker.enqueue(some_jobs(clock, 2), batch=Batch("import-7"))
    clock.advance(days=2)
    broker.enqueue(some_jobs(clock, 2), batch=Batch("import-8"))

    broker.prune(clock.now() - DAY)

    assert broker.enqueue([], batch=Batch("import-7")).batch == 0
    assert broker.enqueue([], batch=Batch("import-8")).batch == 2


def test_positions_go_on_after_a_prune(broker, clock, fields):
    """I13: a reader that goes on from the last position it saw misses nothing."""
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, succeeded())
    last = broker.history()[-1].position
    clock.advance(days=2)
    broker.prune(clock.now() - DAY)
    assert broker.history() == []
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, succeeded())

    assert [event.job for event in broker.history(after=last)] == [job.id]


def test_expired_jobs_end_when_the_store_is_pruned(broker, clock):
    job = a_job(clock, expires_at=clock.now() + 10)
    broker.enqueue([job])
    clock.advance(seconds=11)

    broker.prune(clock.now() - DAY)

    assert (broker.get(job.id).state, broker.get(job.id).reason) == (State.CANCELLED, "expired")


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("boom")], ids=["succeeded", "failed"])
def test_a_job_that_says_so_is_forgotten_sooner(broker, clock, fields, outcome):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, msgspec.structs.replace(outcome, keep_for=60.0))
    clock.advance(seconds=61)

    broker.prune(clock.now() - DAY)

    assert broker.get(job.id) is None
    [event] = [event for event in broker.history() if event.kind == "attempt"]
    assert (event.body, event.result) == ((None, None) if outcome.result else (event.body, None))


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("boom")], ids=["succeeded", "failed"])
def test_a_job_that_says_so_is_kept_longer(broker, clock, fields, outcome):
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, msgspec.structs.replace(outcome, keep_for=3 * DAY))
    clock.advance(days=2)

    broker.prune(clock.now() - DAY)

    assert broker.get(job.id).state is outcome.state
    assert broker.get(job.id).result == outcome.result


@pytest.mark.parametrize("outcome", [succeeded(b"1"), failed("boom")], ids=["succeeded", "failed"])
def test_a_job_is_kept_for_ever(broker, clock, fields, outcome):
    """B50: the archive of a queue with `keep="forever"` outlives the retention."""
    job = enqueue_and_claim(broker, clock, **fields)
    settle(broker, job, msgspec.structs.replace(outcome, keep_for=FOREVER))
    clock.advance(days=40 * 366)

    broker.prune(clock.now() - DAY)

    assert broker.get(job.id).state is outcome.state
    assert broker.get(job.id).result == outcome.result
    assert [event.job for event in broker.history() if event.kind == "attempt"] == [job.id]


def test_a_derived_id_is_remembered_for_as_long_as_what_became_of_its_job(broker, clock):
    """D60: a job that took long to end is not run again by whoever derives its id."""
    job = a_job(clock, id=derived_id("nightly", "2026-11-15"))
    broker.enqueue([job])
    clock.advance(days=20)
    [claimed] = claim(broker)
    settle(broker, claimed, begun(succeeded(), clock.now()))
    clock.advance(days=1)

    broker.prune(clock.now() - 14 * DAY)
    assert broker.enqueue([job]).known == {job.id}
    broker.prune(clock.now() - DAY / 2)

    assert broker.enqueue([job]).known == frozenset()


def test_a_lasting_id_is_remembered_for_ever_once_its_job_is_done(broker, clock, fields):
    """S7, S13: what was done is not run again, however late it is asked for."""
    job = a_job(clock, id=lasting_id("backfill", "2026-11-15"), **fields)
    broker.enqueue([job])
    [claimed] = claim(broker)
    settle(broker, claimed, begun(succeeded(b"1"), clock.now()))
    clock.advance(days=800)

    broker.prune(clock.now() - DAY)

    assert broker.get(job.id) is None
    assert broker.enqueue([job]).known == {job.id}
    assert claim(broker) == []


@pytest.mark.parametrize("ended", ["failed", "cancelled", "deleted"])
def test_a_lasting_id_that_was_not_done_may_come_again_once_its_job_is_gone(broker, clock, ended):
    """What failed is not done: it would be taken for it once nothing else is known of it."""
    job = a_job(clock, id=lasting_id("backfill", "2026-11-15"))
    broker.enqueue([job])
    if ended == "failed":
        [claimed] = claim(broker)
        settle(broker, claimed, begun(failed("x"), clock.now()))
    else:
        broker.act("cancel" if ended == "cancelled" else "delete", [job.id])
    clock.advance(days=2)
    if ended != "deleted":
        assert broker.enqueue([job]).known == {job.id}

    broker.prune(clock.now() - DAY)

    assert broker.enqueue([job]).known == frozenset()
    assert [again.id for again in claim(broker)] == [job.id]


def test_a_lasting_id_whose_job_was_done_and_deleted_stays_known(broker, clock):
    job = a_job(clock, id=lasting_id("backfill", "2026-11-15"))
    broker.enqueue([job])
    [claimed] = claim(broker)
    settle(broker, claimed, begun(succeeded(b"1"), clock.now()))

    broker.act("delete", [job.id])

    assert broker.enqueue([job]).known == {job.id}
