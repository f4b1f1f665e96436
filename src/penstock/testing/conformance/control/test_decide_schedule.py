"""Decide slots of a schedule: job, history and position in one go, by whoever comes first."""

from __future__ import annotations

import json
import threading

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.job import State, succeeded
from penstock.schedules.schedule import Decision, Schedule, plan, slot_id
from penstock.testing.conformance.factories import a_schedule, begun, claim, settle


def named(broker, name="hourly"):
    [schedule] = [each for each in broker.records(Schedule) if each.name == name]
    return schedule


def decide(broker, clock, name="hourly", **options):
    schedule = named(broker, name)
    return broker.decide_schedule(schedule, plan(schedule, clock.now(), **options).decisions)


def said(broker):
    """What the history says of slots, in order."""
    rows = [json.loads(row.data) for row in broker.history() if row.kind == "schedule"]
    return [(row["says"], row.get("slots", 1)) for row in rows if "slot" in row]


def test_a_due_slot_becomes_a_job_that_a_worker_is_handed(broker, clock):
    """D10, D61: exact times."""
    broker.put(a_schedule(every=3600.0))
    clock.advance(seconds=3600)
    slot = clock.now()
    clock.advance(seconds=2)

    assert decide(broker, clock) is True

    [job] = claim(broker)
    assert (job.id, job.task, job.run_at) == (slot_id("hourly", slot), "mail:sweep", slot)
    assert job.tags == {"schedule": "hourly"}
    assert named(broker).decided_until == slot


def test_whoever_comes_second_is_told_so_and_nothing_is_written(broker, clock):
    """D60: two checkers, one event per interval."""
    broker.put(a_schedule())
    clock.advance(hours=1)
    read = named(broker)
    decisions = plan(read, clock.now()).decisions
    assert broker.decide_schedule(read, decisions) is True
    before = broker.history()

    assert broker.decide_schedule(read, decisions) is False

    assert broker.history() == before
    assert len(claim(broker, limit=9)) == 1


def test_many_at_once_make_one_job_and_one_event(broker, clock):
    broker.put(a_schedule(every=60.0))
    for _ in range(5):
        clock.advance(seconds=60)
        read = named(broker)
        decisions = plan(read, clock.now()).decisions
        barrier = threading.Barrier(4)
        held = []

        def come(read=read, decisions=decisions, barrier=barrier, held=held) -> None:
            barrier.wait()
            held.append(broker.decide_schedule(read, decisions))

        threads = [threading.Thread(target=come) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(held) == [False, False, False, True]

    assert len(claim(broker, limit=99)) == 5
    assert said(broker) == [("enqueued", 1)] * 5


def test_every_decision_is_in_the_history(broker, clock):
    broker.put(a_schedule(every=60.0))
    clock.advance(seconds=210)

    decide(broker, clock)

    _, missed, enqueued = broker.history()
    start = clock.now() - 210
    assert (missed.kind, missed.job) == ("schedule", None)
    assert json.loads(missed.data)["slots"] == 2
    assert (enqueued.kind, enqueued.job) == ("schedule", slot_id("hourly", start + 180))
    assert (enqueued.task, enqueued.queue, enqueued.state) == ("mail:sweep", "default", "ready")
    assert json.loads(enqueued.data)["late"] == 30.0
    assert [row.kind for row in broker.history(job=enqueued.job)] == ["schedule"]
    last = named(broker).last
    assert (last.says, last.slot, last.at) == ("enqueued", start + 180, clock.now())


def test_the_jobs_it_made_have_no_say(broker, clock):
    """D11: deleting all of them changes nothing."""
    broker.put(a_schedule())
    clock.advance(hours=1)
    decide(broker, clock)
    kept = named(broker)

    found = broker.find(Filter()).jobs
    broker.act("delete", [job.id for job in found])

    assert len(found) == 1
    assert named(broker) == kept
    assert plan(kept, clock.now()).decisions == []


def test_a_job_that_ended_is_not_made_again(broker, clock):
    broker.put(a_schedule())
    clock.advance(hours=1)
    decide(broker, clock)
    [job] = claim(broker)
    settle(broker, job, begun(succeeded(), clock.now()))
    assert broker.get(job.id).state is State.SUCCEEDED

    broker.clear(Schedule, "hourly")
    clock.jump(-3600)
    broker.put(a_schedule())
    clock.jump(3600)
    decide(broker, clock)

    assert claim(broker) == []


def test_a_clock_that_goes_back_decides_nothing_twice(broker, clock):
    broker.put(a_schedule(every=60.0))
    for _ in range(30):
        clock.advance(seconds=60)
        decide(broker, clock)
    clock.jump(-1200)
    for _ in range(20):
        clock.advance(seconds=60)
        assert plan(named(broker), clock.now()).decisions == []

    clock.advance(seconds=60)
    decide(broker, clock)

    assert len(claim(broker, limit=99)) == 31
    assert said(broker) == [("enqueued", 1)] * 31


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("one", [("skipped: missed", 23), ("enqueued", 1)]),
        ("skip", [("skipped: missed", 24)]),
        ("all", [("skipped: missed", 1), *[("enqueued", 1)] * 23]),
    ],
)
def test_after_a_day_without_workers_each_slot_is_decided_once(broker, clock, missed, expected):
    broker.put(a_schedule(missed=missed, window=None if missed != "all" else 82860.0))
    clock.advance(hours=24, seconds=120)

    decide(broker, clock)

    assert said(broker) == expected
    assert plan(named(broker), clock.now()).decisions == []


def test_an_old_job_that_is_replaced_is_cancelled(broker, clock):
    broker.put(a_schedule(overlap="cancel"))
    clock.advance(hours=1)
    decide(broker, clock)
    first = named(broker).last_job
    clock.advance(hours=1)

    decide(broker, clock, unended=True)

    assert broker.get(first).state is State.CANCELLED
    assert [job.id for job in claim(broker, limit=9)] == [named(broker).last_job]
    assert said(broker)[-1] == ("enqueued: cancelled old", 1)
    assert [row.kind for row in broker.history(job=first)] == ["schedule", "cancel"]


def test_an_old_job_that_runs_is_told(broker, clock):
    broker.put(a_schedule(overlap="cancel"))
    clock.advance(hours=1)
    decide(broker, clock)
    [job] = claim(broker)
    clock.advance(hours=1)

    decide(broker, clock, unended=True)

    assert settle(broker, job, succeeded())
    assert len(claim(broker, limit=9)) == 1


def test_a_pause_is_a_decision_too(broker, clock):
    """D61: a paused one makes nothing, and what a worker planned before does not count."""
    broker.put(a_schedule())
    clock.advance(hours=1)
    read = named(broker)
    planned = plan(read, clock.now()).decisions

    paused = Decision(says="paused", author="ada", reason="stock-taking")
    assert broker.decide_schedule(read, [paused]) is True

    assert broker.decide_schedule(read, planned) is False
    assert named(broker).paused
    decide(broker, clock)
    assert claim(broker) == []
    assert said(broker) == [("skipped: paused", 1)]
    assert json.loads(broker.history()[1].data) == {
        "schedule": "hourly",
        "says": "paused",
        "author": "ada",
        "reason": "stock-taking",
    }

    broker.decide_schedule(named(broker), [Decision(says="resumed")])
    clock.advance(hours=1)
    decide(broker, clock)

    assert len(claim(broker)) == 1


def test_of_a_schedule_that_is_not_there_nothing_is_decided(broker, clock):
    schedule = msgspec.structs.replace(a_schedule(), created_at=clock.now(), revision=1)

    assert broker.decide_schedule(schedule, [Decision(says="paused")]) is False
    assert broker.history() == []


def test_whoever_waits_for_work_hears_of_it(broker, clock):
    broker.put(a_schedule())
    clock.advance(hours=1)
    broker.wait(None, 0.0)

    decide(broker, clock)

    assert broker.wait(None, 5.0) is True


def test_five_hundred_at_once_are_stored_together(broker, clock):
    broker.put(a_schedule(every=60.0, missed="all", window=86400.0))
    clock.advance(seconds=60 * 500)

    decide(broker, clock)

    assert sum(count.ready for count in broker.count()) == 500
    assert len(claim(broker, limit=999)) == 500
