"""Intervals: the hours, days, weeks and months that a dataset is made of, in its time zone.

The intervals of one kind tile time: each ends where the next begins, whatever clocks do. A day in
which they change has 23 or 25 hours; a date that a zone left out has no interval. Hours are those
of UTC, written in the zone with their offset, since a zone has one of them twice a year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Literal, cast, get_args
from zoneinfo import ZoneInfo

import msgspec

from penstock.errors import Refused

Every = Literal["hour", "day", "week", "month"]
KINDS: tuple[Every, ...] = get_args(Every)
MOST = 100_000  # intervals of one range
_EXAMPLES: dict[Every, str] = {
    "hour": "2026-01-31T05:00Z",
    "day": "2026-01-31",
    "week": "2026-W05",
    "month": "2026-01",
}
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_WEEK = re.compile(r"(\d{4})-W(\d{2})")


class Interval(msgspec.Struct, frozen=True, order=True):
    """A partition of a dataset that goes by time: from `start` up to, not including, `end`.

    Both are in the dataset's time zone, as its offset from UTC at that moment. Python compares two
    times of one named zone by their wall clocks, which is wrong in the hour that comes twice.
    """

    start: datetime
    end: datetime
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def day(self) -> date:
        """The day on which it begins, in the dataset's time zone."""
        return self.start.date()

    def contains(self, moment: datetime) -> bool:
        """Whether this moment, which has a time zone, is in it."""
        return self.start <= moment < self.end


class Timeline(msgspec.Struct, frozen=True):
    """All intervals of one kind in one time zone."""

    every: Every
    zone: str = "UTC"

    def containing(self, moment: datetime) -> Interval:
        """The interval that this moment is in."""
        return _containing(self.every, self.zone, moment.astimezone(UTC))

    def after(self, interval: Interval) -> Interval:
        """The one that follows."""
        return self.containing(interval.end)

    def before(self, interval: Interval, count: int = 1) -> Interval:
        """So many intervals earlier."""
        for _ in range(count):
            interval = self.containing(interval.start.astimezone(UTC) - timedelta(microseconds=1))
        return interval

    def overlapping(self, start: datetime, end: datetime) -> Iterator[Interval]:
        """Those that have a moment in common with the time from `start` to `end`, in order."""
        interval = self.containing(start)
        for _ in range(MOST):
            if interval.start >= end:
                return
            yield interval
            interval = self.after(interval)
        raise Refused(f"from {start} to {end}: more than {MOST:,} intervals of a {self.every}")

    def within(self, start: datetime, end: datetime) -> list[Interval]:
        """Those that lie in the time from `start` to `end` completely, in order."""
        if start >= end:
            return []
        return [
            each for each in self.overlapping(start, end) if start <= each.start < each.end <= end
        ]

    def parse(self, text: str) -> Interval:
        """The interval that this text names."""
        try:
            interval = self.containing(self._moment(text.strip()))
        except (ValueError, OverflowError):
            interval = None
        if interval is None:
            raise Refused(f"{text!r} names no {self.every}: write it as {_EXAMPLES[self.every]}")
        return interval

    def _moment(self, text: str) -> datetime:
        zone = ZoneInfo(self.zone)
        if self.every == "month" and (match := _MONTH.fullmatch(text)):
            return _midnight(date(int(match[1]), int(match[2]), 1), zone)
        if self.every == "week" and (match := _WEEK.fullmatch(text)):
            return _midnight(date.fromisocalendar(int(match[1]), int(match[2]), 1), zone)
        if len(text) == len("2026-01-31"):
            day = date.fromisoformat(text)
            start = _midnight(day, zone)
            if start == _midnight(day + _DAY, zone):
                raise ValueError(text)  # a date that the zone left out
            return start
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(text)
        return moment


@lru_cache(65_536)
def _containing(every: Every, zone_name: str, moment: datetime) -> Interval:
    zone = ZoneInfo(zone_name)
    if every == "hour":
        start = moment.replace(minute=0, second=0, microsecond=0)
        local = _local(start, zone)
        text = f"{local:%Y-%m-%dT%H:%M}{_offset_text(local)}"
        return Interval(local, _local(start + _HOUR, zone), text)
    day = moment.astimezone(zone).date()
    first = {"day": day, "week": day - day.weekday() * _DAY, "month": day.replace(day=1)}[every]
    start = _midnight(first, zone)
    following = first
    while (end := _midnight(following := _following(every, following), zone)) == start:
        pass
    # Around midnight clocks may go back to the day before: what is past counts, not the date.
    if moment < start:
        return _containing(every, zone_name, start - timedelta(microseconds=1))
    if moment >= end:
        return _containing(every, zone_name, end)
    return Interval(_local(start, zone), _local(end, zone), _text(every, first))


def _text(every: Every, first: date) -> str:
    if every == "week":
        year, week, _ = first.isocalendar()
        return f"{year:04}-W{week:02}"
    return f"{first:%Y-%m}" if every == "month" else first.isoformat()


def _following(every: Every, first: date) -> date:
    if every == "month":
        return (first.replace(day=28) + 4 * _DAY).replace(day=1)
    return first + (7 * _DAY if every == "week" else _DAY)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a day begins: where its midnight is left out, at the moment at which clocks changed."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    local = moment.astimezone(zone)
    offset = local.utcoffset()
    return local.replace(tzinfo=timezone(offset) if offset else UTC, fold=0)


def _offset_text(local: datetime) -> str:
    offset = local.utcoffset() or timedelta()
    return f"{local:%z}"[:3] + ":" + f"{local:%z}"[3:5] if offset else "Z"


def check_zone(what: str, zone: object) -> str:
    """The name of a time zone that this machine knows."""
    try:
        return ZoneInfo(cast("str", zone)).key
    except Exception:
        raise Refused(
            f"{what}: zone={zone!r} is no time zone; write one as Europe/Paris, or UTC"
        ) from None


def check_partition(what: str, partition: object, zone: object) -> Timeline | tuple[str, ...]:
    """The intervals that `partition=` asks for, or a list of names."""
    if isinstance(partition, str):
        if partition not in KINDS:
            raise Refused(
                f"{what}: partition={partition!r}: there are {', '.join(KINDS)}, or a list of names"
            )
        return Timeline(partition, check_zone(what, zone))
    names = tuple(cast("Sequence[object]", partition)) if _is_list(partition) else ()
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise Refused(
            f"{what}: partition={partition!r}: {', '.join(KINDS)}, or a list of names such as"
            ' ["north", "south"]'
        )
    if len(set(names)) < len(names):
        raise Refused(f"{what}: partition={partition!r} has a name twice")
    return cast("tuple[str, ...]", names)


def _is_list(partition: object) -> bool:
    return isinstance(partition, Sequence) and not isinstance(partition, bytes)
