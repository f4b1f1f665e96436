"""Schedules: every one as it is kept, by name."""

from __future__ import annotations

from penstock.schedules.schedule import Schedule
from penstock.testing.conformance.factories import a_schedule


def test_a_store_begins_without_any(broker):
    assert broker.records(Schedule) == []


def test_they_come_by_name(broker, clock):
    kept = {name: broker.put(a_schedule(name)) for name in ("b", "C", "a", "\u00e9", "z")}

    assert broker.records(Schedule) == [kept[name] for name in sorted(kept)]


def test_they_are_no_jobs(broker, clock):
    broker.put(a_schedule())

    assert broker.count() == []
