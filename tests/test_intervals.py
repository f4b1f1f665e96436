"""Intervals of datasets: they tile time in every zone, and are written as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Refused
from penstock.task.interval import KINDS, Timeline, check_partition

# Midnights that are left out or come twice, a date that was, half hours, and plain ones.
ZONES = (
    *("UTC", "Europe/Paris", "America/Havana", "America/Sao_Paulo", "Asia/Beirut"),
    *("Atlantic/Azores", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"),
)
MOMENTS = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1)).map(  # noqa: DTZ001
    lambda moment: moment.replace(tzinfo=UTC)
)


@given(st.sampled_from(KINDS), st.sampled_from(ZONES), MOMENTS)
def test_each_ends_where_the_next_begins_and_its_text_names_it(every, zone, moment):
    line = Timeline(every, zone)

    interval = line.containing(moment)

    following = line.after(interval)
    assert interval.contains(moment)
    assert interval.start < interval.end == following.start
    assert line.before(following) == interval
    assert line.parse(interval.text) == interval


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-01-01", 24)]
)
def test_a_day_in_which_clocks_change_has_23_or_25_hours(day, hours):
    interval = Timeline("day", "Europe/Paris").parse(day)

    assert interval.end - interval.start == timedelta(hours=hours)
    assert (interval.day, str(interval)) == (date.fromisoformat(day), day)
    every_hour = list(Timeline("hour", "Europe/Paris").overlapping(interval.start, interval.end))
    assert len({each.text for each in every_hour}) == hours


def test_a_month_of_days_and_a_range_without_what_is_not_over():
    days = Timeline("day", "Europe/Paris")
    month = Timeline("month", "Europe/Paris").parse("2026-03")

    assert len(list(days.overlapping(month.start, month.end))) == 31
    until = datetime(2026, 3, 3, 22, tzinfo=UTC)  # an hour before midnight
    assert [str(day) for day in days.within(month.start, until)] == ["2026-03-01", "2026-03-02"]
    assert Timeline("week").parse("2026-W01").day == date(2025, 12, 29)


@pytest.mark.parametrize(
    ("every", "text"),
    [
        ("day", "yesterday"),
        ("day", "2026-02-30"),
        ("week", "2026-W60"),
        ("month", "2026-13"),
        ("hour", "2026-01-01T05:00"),  # of which zone?
    ],
)
def test_what_names_no_interval_is_refused_with_an_example(every, text):
    with pytest.raises(Refused, match=f"'{text}' names no {every}: write it as 2026-"):
        Timeline(every).parse(text)


def test_a_date_that_a_zone_left_out_is_refused():
    with pytest.raises(Refused, match="2011-12-30"):
        Timeline("day", "Pacific/Apia").parse("2011-12-30")


@pytest.mark.parametrize(
    ("partition", "zone", "says"),
    [
        ("year", "UTC", "partition='year': there are hour, day, week, month"),
        ("day", "Europe/Pariss", "zone='Europe/Pariss' is no time zone"),
        ([], "UTC", "a list of names"),
        (["a", "a"], "UTC", "has a name twice"),
        (["a", 7], "UTC", "a list of names"),
        (7, "UTC", "a list of names"),
    ],
)
def test_a_partition_that_there_is_not_is_refused(partition, zone, says):
    with pytest.raises(Refused, match=says):
        check_partition("dataset rides", partition, zone)
