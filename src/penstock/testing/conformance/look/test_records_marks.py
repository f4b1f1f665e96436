"""Marks: how far every lake has the history, for those who look."""

from __future__ import annotations

import pytest

from penstock.broker.lake_mark import Mark

pytestmark = pytest.mark.needs("bulk", "one place")


def test_there_is_none_at_first(broker):
    assert broker.records(Mark) == []


def test_each_by_its_name(broker, clock):
    kept = [broker.put(Mark(lake=name)) for name in ("ü", "b", "a b")]

    assert broker.records(Mark) == sorted(kept, key=lambda mark: mark.lake)
    assert {mark.told_at for mark in broker.records(Mark)} == {clock.now()}
