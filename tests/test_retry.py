"""Retry: whether again, and how much later."""

from __future__ import annotations

import pytest

from penstock.errors import Refused, RetryLater
from penstock.task.retry import NO_RETRY, Repeat, Retry


def test_the_limit_counts_retries():
    """D25: two retries, the third failure ends it."""
    retry = Retry(limit=2)

    assert [retry.allows(OSError(), failures) for failures in (1, 2, 3)] == [True, True, False]


def test_three_retries_ten_seconds_apart_unless_told_otherwise():
    assert Retry() == Retry(
        limit=3, delay=10.0, factor=1.0, jitter=0.0, max=3600.0, on=(Exception,), then="fail"
    )
    assert [Retry().allows(OSError(), failures) for failures in (3, 4)] == [True, False]


def test_no_limit_is_for_ever():
    assert Retry(limit=None).allows(OSError(), 1_000_000)
    assert not Retry(limit=999_999).allows(OSError(), 1_000_000)


def test_a_limit_of_none_at_all():
    assert not NO_RETRY.allows(OSError(), 1)


def test_only_what_is_named_is_retried():
    """C7."""
    retry = Retry(on=(OSError, ValueError), never=(FileNotFoundError,))

    assert retry.allows(ConnectionError(), 1)
    assert retry.allows(ValueError(), 1)
    assert not retry.allows(KeyError(), 1)
    assert not retry.allows(FileNotFoundError(), 1)


def test_what_is_not_an_exception_is_not_retried_unless_named():
    assert not Retry().allows(KeyboardInterrupt(), 1)
    assert Retry(on=(KeyboardInterrupt,)).allows(KeyboardInterrupt(), 1)


def test_the_delay_is_constant_unless_told_otherwise():
    """D24: five minutes each."""
    retry = Retry(delay=300)

    assert [retry.delay_before(k) for k in (1, 2, 3)] == [300, 300, 300]


def test_delays_double_up_to_a_bound():
    """B24."""
    retry = Retry(delay=1, factor=2, max=10)

    assert [retry.delay_before(k) for k in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_a_factor_that_overflows_ends_at_the_bound():
    assert Retry(limit=None, delay=1, factor=10, max=60).delay_before(5000) == 60


@pytest.mark.parametrize(("spread", "delay"), [(-1, 50), (0, 100), (1, 150)])
def test_jitter_spreads_in_both_directions(spread, delay):
    assert Retry(delay=100, jitter=0.5).delay_before(1, spread) == delay


def test_jitter_stays_within_its_bounds():
    retry = Retry(delay=100, jitter=0.33)

    delays = [retry.delay_before(1) for _ in range(200)]

    assert 67 <= min(delays) < 80  # in both directions, and far
    assert 120 < max(delays) <= 133


def test_jitter_does_not_pass_the_longest_delay():
    assert Retry(delay=100, jitter=0.5, max=120).delay_before(1, 1) == 120


def test_neither_jitter_nor_the_first_delays_pass_the_shortest_delay():
    """V50: doubled each time, spread by a third, within min and max."""
    retry = Retry(delay=30, factor=2, jitter=0.33, min=30, max=100)

    assert [retry.delay_before(1, spread) for spread in (-1, 0, 1)] == [30, 30, pytest.approx(39.9)]
    assert [retry.delay_before(3, spread) for spread in (-1, 1)] == [pytest.approx(67), 100]
    assert Retry(delay=1, min=5).delay_before(1) == 5


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"min": 10, "max": 5}, "min=10, max=5"),
        ({"delay": -1}, "delay=-1"),
        ({"jitter": -0.1}, "jitter=-0.1"),
        ({"max": -5}, "max=-5"),
        ({"delay": float("nan")}, "nan"),
        ({"limit": -1}, "limit=-1"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(fields, named):
    with pytest.raises(Refused, match=named):
        Retry(**fields)


def test_a_repeat_is_for_ever_and_at_once_unless_told_otherwise():
    """B17, B22."""
    repeat = Repeat()

    assert (repeat.limit, repeat.delay, repeat.then) == (None, 0.0, "keep")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Retry(limit=1.5), r"Retry\(limit=1.5\): a whole number"),
        (lambda: Retry(limit="3"), r"Retry\(limit='3'\): a whole number"),
        (lambda: Retry(delay="3"), r"Retry\(delay='3'\): a number, 0 or more"),
        (lambda: Retry(factor=float("nan")), r"Retry\(factor=nan\)"),
        (lambda: Retry(on=("x",)), r"Retry\(on=\('x',\)\): a tuple of exception classes"),
        (lambda: Retry(then="forget"), r"Retry\(then='forget'\): \"fail\" or \"delete\""),
        (lambda: Repeat(then="fail"), r"Repeat\(then='fail'\): \"keep\" or \"delete\""),
        (lambda: Repeat(delay=-1), r"Repeat\(delay=-1\)"),
        (lambda: Repeat(limit=-1), r"Repeat\(limit=-1\)"),
        (lambda: RetryLater(after=-1), r"RetryLater\(after=-1\): seconds"),
        (lambda: RetryLater(after="soon"), r"RetryLater\(after='soon'\): seconds"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(make, message):
    with pytest.raises(Refused, match=message):
        make()
