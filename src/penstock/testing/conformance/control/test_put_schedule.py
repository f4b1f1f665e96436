"""Put a schedule: kept under its name, from now on; the same again is nothing."""

from __future__ import annotations

import json
import threading

import msgspec
import pytest

from penstock.errors import Refused
from penstock.schedules.schedule import Schedule, plan
from penstock.testing.conformance.factories import a_schedule


def test_a_new_schedule_begins_now(broker, clock):
    """D60."""
    kept = broker.put(a_schedule(cron="0 3 * * *", zone="Europe/Paris"))

    assert (kept.created_at, kept.decided_until) == (clock.now(), clock.now())
    assert broker.records(Schedule) == [kept]


def test_everything_about_it_is_kept(broker, clock):
    schedule = a_schedule(
        every=90.5, missed="all", window=600.0, overlap="skip", takes_slot=True, expires=5.0
    )
    job = msgspec.structs.replace(
        schedule.job, body=b'{"args":{"to":"\\u00e9\\u0000"}}', tags={"a": "b"}, runs_on=("gpu",)
    )
    schedule = msgspec.structs.replace(schedule, job=job, from_code=True)

    kept = broker.put(schedule)

    assert broker.records(Schedule) == [kept]
    assert kept.job == job
    assert (kept.missed, kept.window, kept.overlap, kept.expires) == ("all", 600.0, "skip", 5.0)


def test_a_task_that_is_named_like_a_file_is_refused(broker):
    with pytest.raises(Refused, match=r"task '/tmp/x.py:f' is a path"):
        broker.put(a_schedule(task="/tmp/x.py:f"))

    assert broker.records(Schedule) == []


def test_put_again_it_stays_as_it_is(broker, clock):
    """Every worker puts the schedules of its code when it starts."""
    kept = broker.put(a_schedule())
    clock.advance(hours=5)

    assert broker.put(a_schedule()) == kept
    assert broker.records(Schedule) == [kept]
    assert len(broker.history()) == 1


def test_other_arguments_leave_how_far_it_is_decided(broker, clock):
    kept = broker.put(a_schedule())
    clock.advance(minutes=30)

    changed = broker.put(a_schedule(task="mail:send", missed="skip"))

    assert (changed.job.task, changed.missed) == ("mail:send", "skip")
    assert (changed.decided_until, changed.starts_at) == (kept.decided_until, kept.starts_at)
    assert changed.revision > kept.revision


def test_other_times_begin_now(broker, clock):
    kept = broker.put(a_schedule())
    clock.advance(minutes=30)

    changed = broker.put(a_schedule(every=60.0))

    assert (changed.decided_until, changed.starts_at) == (clock.now(), clock.now())
    assert changed.created_at == kept.created_at


def test_a_clock_that_went_back_opens_nothing_again(broker, clock):
    kept = broker.put(a_schedule())
    clock.jump(-7200)

    changed = broker.put(a_schedule(every=60.0))

    assert changed.decided_until == kept.decided_until


def test_what_is_paused_stays_so(broker, clock):
    broker.put(msgspec.structs.replace(a_schedule(), paused=True))

    assert broker.put(a_schedule(every=60.0)).paused


def test_what_was_planned_from_an_older_one_is_not_decided(broker, clock):
    kept = broker.put(a_schedule(every=60.0))
    clock.advance(minutes=2)
    decisions = plan(kept, clock.now()).decisions
    broker.put(a_schedule(every=60.0, overlap="skip"))

    assert broker.decide_schedule(kept, decisions) is False
    assert broker.count() == []


def test_the_history_tells_who_put_it(broker, clock):
    broker.put(a_schedule(), author="ada")

    [event] = broker.history()
    assert (event.kind, event.at) == ("schedule", clock.now())
    assert json.loads(event.data) == {
        "schedule": "hourly",
        "says": "put",
        "author": "ada",
        "reason": "",
    }


def test_many_that_put_the_same_at_once_put_it_once(broker, clock):
    barrier = threading.Barrier(4)
    kept = []

    def put() -> None:
        barrier.wait()
        kept.append(broker.put(a_schedule()))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(kept) == 4
    assert {each.revision for each in kept} == {1}
    assert len(broker.history()) == 1


@pytest.mark.parametrize("name", ["", "a\x00b", "x" * 201])
def test_a_name_that_nobody_can_type_is_refused(broker, name):
    with pytest.raises(Refused, match="schedule"):
        broker.put(a_schedule(name))

    assert broker.records(Schedule) == []
