"""Marks: how far every lake has the history, for those who look."""

from __future__ import annotations

from penstock.mark import Mark


def test_there_is_none_at_first(broker):
    assert broker.marks() == []


def test_each_by_its_name(broker, clock):
    kept = [broker.set_mark(Mark(lake=name)) for name in ("ü", "b", "a b")]

    assert broker.marks() == sorted(kept, key=lambda mark: mark.lake)
    assert {mark.told_at for mark in broker.marks()} == {clock.now()}
