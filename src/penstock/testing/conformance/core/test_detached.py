"""What detached jobs ask of a store: a claim's row that changes hands, and nothing of its own."""

from __future__ import annotations

import threading

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.views import Note
from penstock.errors import Refused
from penstock.job import DETACHED, Outcome, State, Unique, failed, lapsed, put_back, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    begun,
    claim_for,
    enqueue_and_claim,
    part,
)

MINE = Filter(tags={name: (value,) for name, value in DETACHED.items()})


@pytest.fixture
def job(broker, clock):
    """One that a spare row has claimed."""
    job = a_job(clock, tags=DETACHED, body=b'{"args":{"year":2026}}')
    broker.enqueue([job])
    [claimed] = claim_for(broker, a_worker("spare", pid=1))
    assert claimed.id == job.id
    return claimed


def the_process(**fields):
    """The same row, as the process that was started for the job renews it."""
    return a_worker("spare", pid=2, tasks={}, queues=(), **fields)


def test_it_is_found_with_its_arguments_before_any_worker_is_there(broker, clock):
    """A15, A17, A38: what is stored is seen, and there is nothing beside it to get lost."""
    job = a_job(clock, tags=DETACHED, body=b'{"args":{"year":2026}}')
    broker.enqueue([job, a_job(clock)])

    [found] = broker.find(MINE).jobs

    assert (found.id, found.body, found.state) == (job.id, job.body, State.READY)


def test_a_row_that_changes_hands_holds_its_job(broker, clock, job):
    """A3, A48: renewed by another process, for days, however short the lease."""
    for _ in range(20):
        clock.advance(seconds=10)
        assert broker.renew([the_process()]).lapsed == frozenset()
        assert broker.recover() == 0

    [row] = broker.workers()
    assert (row.pid, row.alive, dict(row.tasks)) == (2, True, {})
    assert broker.get(job.id).worker == "spare"


def test_a_process_that_is_silent_loses_the_job_within_its_lease(broker, clock, job):
    """A48: dead in seconds, although the job may take days."""
    broker.renew([the_process()])
    clock.advance(seconds=16)

    assert broker.recover() == 1

    kept = broker.get(job.id)
    assert (kept.state, kept.lapses) == (State.READY, 1)
    assert broker.renew([the_process()]).lapsed == {"spare"}


def test_a_process_settles_the_job_as_it_reads_it(broker, clock, job):
    """A11, A47: it was not there when the job was claimed, and needs nothing but its id."""
    broker.renew([the_process()])
    read = broker.get(job.id)

    assert broker.note(read, Note("snapshot", value=b"1"))
    assert broker.settle([(read, succeeded(b"7"))]) == [True]

    assert broker.recover(dead="spare", started=()) == 0
    assert broker.workers() == []
    assert (broker.get(job.id).state, broker.get(job.id).result) == (State.SUCCEEDED, b"7")


def test_nothing_comes_after_the_end(broker, clock, job):
    """A14, A28, A29: no note, no second end, no other attempt; what was given up has no say."""
    broker.settle([(job, succeeded())])

    assert not broker.note(job, Note("snapshot", value=b"2"))
    assert broker.settle([(job, lapsed())]) == [False]
    assert broker.recover(dead="spare", started=[job.id]) == 0
    assert claim_for(broker, a_worker("other")) == []
    assert broker.get(job.id).state is State.SUCCEEDED


def test_one_that_is_done_is_not_run_again_though_it_is_forgotten_and_sent_again(
    broker, clock, job
):
    """A14: its row is gone, its history stands, and its id is remembered."""
    broker.settle([(job, begun(succeeded(), clock.now()))])
    assert broker.act("delete", [job.id]) == [job.id]

    answer = broker.enqueue([job])

    assert answer.known == {job.id}
    assert claim_for(broker, a_worker("other")) == []
    ends = [event.state for event in broker.history(job=job.id) if event.kind == "attempt"]
    assert ends == [State.SUCCEEDED]


def test_of_many_who_end_it_and_note_at_once_one_ends_it_and_nobody_is_heard_after(
    broker, clock, job
):
    """A28: also under concurrency."""
    start = threading.Barrier(8)
    ends: list[bool] = []

    def end(number):
        start.wait()
        outcome = succeeded(b"%d" % number) if number % 2 else failed("no")
        ends.extend(broker.settle([(job, outcome)]))
        ends.append(broker.note(job, Note("event", "late")))

    threads = [threading.Thread(target=end, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ends.count(True) == 1
    assert said(broker, job.id) == ["queued"]


def test_one_that_ended_wrong_is_open_again_when_it_is_retried(broker, clock, job):
    """A28: and what it noted is there."""
    broker.note(job, Note("snapshot", value=b"2"))
    broker.act("cancel", [job.id])
    broker.settle([(job, put_back("shutdown"))])
    assert broker.get(job.id).state is State.CANCELLED

    broker.act("retry", [job.id])

    [again] = claim_for(broker, a_worker("other"))
    assert again.attempt > job.attempt
    assert [note.value for note in broker.notes(job.id, "snapshot")] == [b"2"]


def test_it_runs_only_where_it_can(broker, clock):
    """A36, C25: a laptop is not handed what needs the warehouse's network."""
    broker.enqueue([a_job(clock, tags=DETACHED, runs_on=("warehouse",))])

    assert claim_for(broker, a_worker("laptop")) == []
    assert len(claim_for(broker, a_worker("server", tags=frozenset({"warehouse", "gpu"})))) == 1


def test_lapses_of_one_that_got_on_can_be_taken_back(broker, clock, job):
    """A13: a host that is replaced every day must not use up the crash budget of a job of weeks."""
    for _ in range(2):
        broker.recover(dead="spare", started=[job.id])
        clock.advance(seconds=5)  # it waits longer each time
        [job] = claim_for(broker, a_worker("spare"))
    assert job.lapses == 2

    forgiven = Outcome(State.READY, "resumed", lapses=-job.lapses)
    assert broker.settle([(job, forgiven)]) == [True]

    [again] = claim_for(broker, a_worker("other"))
    assert (again.id, again.lapses) == (job.id, 0)


def said(broker, job):
    """What the history says of a job, in order."""
    events = broker.history(job=job)
    return [msgspec.json.decode(event.data)["name"] for event in events if event.kind == "event"]


def test_its_history_begins_when_it_is_queued_and_says_when_it_started(broker, clock):
    """A15, A28: at once, before any worker; once, however often it is sent; and no other job's."""
    job = a_job(clock, tags={**DETACHED, "tenant": "a"}, key="ada", run_at=clock.now() + 60)
    broker.enqueue([job, a_job(clock), a_job(clock, tags={"tenant": "a"})])
    broker.enqueue([job])

    [queued] = broker.history()

    assert (queued.kind, queued.job, queued.task) == ("event", job.id, "mail:send")
    assert msgspec.json.decode(queued.data) == {"name": "queued", "value": {}}
    assert (queued.state, queued.attempt, queued.key) == (State.READY, 0, "ada")
    assert (queued.run_at, queued.tags) == (job.run_at, job.tags)
    clock.advance(seconds=60)
    [claimed] = claim_mine(broker, job)
    broker.note(claimed, Note("event", "started", b'{"pid":7}'))
    assert said(broker, job.id) == ["queued", "started"]


def claim_mine(broker, job):
    claimed = claim_for(broker, a_worker("spare"), limit=9)
    return [each for each in claimed if each.id == job.id]


def test_one_that_is_not_stored_leaves_no_word_of_it(broker, clock):
    """A38: both or neither, also where another stands for it or all of it is refused."""
    unique = Unique("report")
    broker.enqueue([a_job(clock, tags=DETACHED, unique=unique)])
    broker.enqueue([a_job(clock, tags=DETACHED, unique=unique)])
    with pytest.raises(Refused):
        broker.enqueue([a_job(clock, tags=DETACHED), a_job(clock, body=b"x" * (2 << 20))])

    assert len(broker.find(MINE).jobs) == len(broker.history()) == 1


@pytest.mark.needs("bulk")
def test_of_a_flow_spawned_or_published_it_says_so_as_well(broker, clock):
    spawning = enqueue_and_claim(broker, clock)
    flow = a_flow(clock, first=part(), second=part("first", tags=DETACHED))
    flow.send(broker)
    spawn = a_flow(clock, child=part(tags=DETACHED))
    broker.settle([(spawning, spawn.spawned_by(succeeded()))])
    staged = a_job(clock, tags=DETACHED)
    broker.stage("write", "part", [staged])
    broker.commit_write("write", {"part": 1})

    [waiting, child] = flow.ids("second") + spawn.ids("child")

    assert [said(broker, job) for job in (waiting, child, staged.id)] == [["queued"]] * 3
    [event] = [event for event in broker.history(job=waiting) if event.kind == "event"]
    assert event.state is State.WAITING
