"""Clear a schedule: it is forgotten, and how far it was decided with it; its jobs stay."""

from __future__ import annotations

import json

from penstock.job import State
from penstock.schedules.schedule import Schedule, plan, slot_id
from penstock.testing.conformance.factories import a_schedule


def test_a_schedule_that_is_cleared_is_gone(broker, clock):
    broker.put(a_schedule("a"))
    left = broker.put(a_schedule("b"))

    assert broker.clear(Schedule, "a") is True
    assert broker.records(Schedule) == [left]


def test_one_that_is_not_there_is_no_error(broker):
    assert broker.clear(Schedule, "nothing") is False
    assert broker.history() == []


def test_its_jobs_stay(broker, clock):
    kept = broker.put(a_schedule())
    clock.advance(hours=1)
    broker.decide_schedule(kept, plan(kept, clock.now()).decisions)

    broker.clear(Schedule, "hourly")

    assert broker.get(slot_id("hourly", clock.now())).state is State.READY


def test_put_again_it_begins_anew(broker, clock):
    """D11: with its record gone, the next time is counted from now."""
    broker.put(a_schedule())
    clock.advance(minutes=40)
    broker.clear(Schedule, "hourly")

    kept = broker.put(a_schedule())

    assert (kept.created_at, kept.decided_until) == (clock.now(), clock.now())


def test_what_was_planned_before_is_not_decided(broker, clock):
    kept = broker.put(a_schedule())
    clock.advance(hours=1)
    decisions = plan(kept, clock.now()).decisions
    broker.clear(Schedule, "hourly")

    assert broker.decide_schedule(kept, decisions) is False

    clock.advance(hours=1)
    broker.put(a_schedule())

    assert broker.decide_schedule(kept, decisions) is False
    assert broker.count() == []


def test_the_history_tells_who_cleared_it(broker, clock):
    broker.put(a_schedule())

    broker.clear(Schedule, "hourly", author="ada")

    event = broker.history()[-1]
    assert event.kind == "schedule"
    assert json.loads(event.data)["says"] == "removed"
    assert json.loads(event.data)["author"] == "ada"
