"""The clock that tests move, and the machine's own."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from penstock.app.clock import SYSTEM_CLOCK
from penstock.testing.clock import Clock


def test_it_begins_at_the_real_time_and_stands_still():
    clock = Clock()

    assert clock.now() == pytest.approx(time.time(), abs=5)
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())


def test_it_begins_where_it_is_told():
    assert Clock(1000.0).now() == 1000.0
    assert Clock(0.0).now() == 0.0


def test_time_passes_on_both_clocks():
    clock = Clock(0.0)
    before = clock.monotonic()

    clock.advance(seconds=1, minutes=2, hours=3, days=4)

    passed = 1 + 120 + 3 * 3600 + 4 * 86400
    assert clock.now() == passed
    assert clock.monotonic() - before == pytest.approx(passed)


def test_a_jump_moves_the_wall_clock_alone():
    clock = Clock(1000.0)
    before = clock.monotonic()

    clock.jump(-3600)

    assert clock.now() == -2600.0
    assert clock.monotonic() == before


def test_time_does_not_pass_backwards():
    with pytest.raises(ValueError, match="jump"):
        Clock().advance(seconds=-1)


def test_the_machine_s_own_clock():
    assert SYSTEM_CLOCK.now() == pytest.approx(time.time(), abs=5)
    assert SYSTEM_CLOCK.monotonic() == pytest.approx(time.monotonic(), abs=5)


def test_it_takes_a_span_of_time_in_either_form():
    clock = Clock(1000.0)

    clock.advance(timedelta(minutes=1))
    clock.advance(2, minutes=1)

    assert clock.now() == 1122.0
