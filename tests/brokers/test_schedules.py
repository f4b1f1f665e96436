"""Schedules: every one as it is kept, by name."""

from __future__ import annotations

from tests.factories import a_schedule


def test_a_store_begins_without_any(broker):
    assert broker.schedules() == []


def test_they_come_by_name(broker, clock):
    kept = {name: broker.put_schedule(a_schedule(name)) for name in ("b", "C", "a", "\u00e9", "z")}

    assert broker.schedules() == [kept[name] for name in sorted(kept)]


def test_they_are_no_jobs(broker, clock):
    broker.put_schedule(a_schedule())

    assert broker.count() == []
