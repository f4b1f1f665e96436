"""Find, newest first: where a store in tables looks jobs up, and the places that pages end at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.filter import Filter
from penstock.broker.newest_first import below, made
from penstock.brokers.tables import finding
from penstock.enqueue.ids import TICKS, derived_id, tick_of, time_text
from penstock.job import Job
from penstock.testing.conformance.look.test_find_newest import all_pages, mixed_jobs


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_a_tag_that_very_many_have_is_found_in_the_same_order(broker, clock, limit, monkeypatch):
    mixed_jobs(broker, clock)
    few = all_pages(broker, Filter(tags={"tenant": ("a",)}), limit)

    monkeypatch.setattr(finding, "MOST_LOOKED_UP", 2)

    assert all_pages(broker, Filter(tags={"tenant": ("a",)}), limit) == few


@given(
    at=st.floats(1.6e9, 4e9),
    apart=st.integers(-3, 3),
    version=st.sampled_from("0478f"),
)
def test_what_is_below_a_place_is_what_is_older(at, apart, version):
    """Around the tick of an id, where rounding could put a job on both sides, or on none."""
    time = time_text(tick_of(at))
    ordinary = Job[Any](task="mail:send", id=f"{time[:14]}{version}{time[15:]}-9000-000000000000")
    moment = at + apart / TICKS
    derived = Job[Any](task="mail:send", id=derived_id("x"), enqueued_at=moment)

    assert below(str(made(ordinary))).holds(derived) == (made(derived) < made(ordinary))
    assert below(str(made(derived))).holds(ordinary) == (made(ordinary) < made(derived))
    assert not below(str(made(derived))).holds(derived)
    assert not below(str(made(ordinary))).holds(ordinary)
