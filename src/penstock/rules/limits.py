"""Limits: how many jobs may run, and how many may start in a time, over all workers together.

`Limits` is the arithmetic of claims on SQLite and in memory, and of `why` and `count` on every
store. Claims on PostgreSQL have it once more, in `brokers/postgres/functions/limits.sql`: change
both. What was used is read by `brokers/tables/limit_usage.py` and `brokers/memory/store.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from penstock.errors import Refused
from penstock.job import Lane
from penstock.rules.rule import Rule, RuleKind, check_rule

_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\d+(?:\.\d+)?)?\s*(ms|s|sec|m|min|h|d)\s*")
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def limit_rule(
    queue: str | None, task: str | None, author: str = "", reason: str = "", **bounds: Any
) -> Rule:
    """A limit with these bounds; a rate may be a text, as people write it."""
    if queue is None and task is None:
        raise Refused("limit what? Name a queue, task=..., or both")
    if isinstance(bounds.get("rate"), str):
        bounds["rate"] = parse_rate(bounds["rate"])
    rule = Rule(RuleKind.LIMIT, queue, task, author, reason, **bounds)
    check_rule(rule)
    return rule


def parse_rate(text: str) -> tuple[int, float]:
    """So many starts in so many seconds, as people write it: `10/s`, `100/min`, `5/30s`."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise Refused(f"rate {text!r}: write 10/s, 100/min, 5/30s, with a unit of ms, s, min, h, d")
    return int(match[1]), float(match[2] or 1) * _UNITS[match[3]]


def slack_of(seconds: float) -> float:
    """How long after its claim a job may begin that is under a rate of so many seconds.

    A claim is counted as a start, and the start comes a little later: counted for the window and
    this much more, no window has more starts than the rate says.
    """
    return min(1.0, max(0.05, seconds / 10))


class Use(NamedTuple):
    """What stands against a limit: how many run, and when how many started."""

    running: int
    starts: Sequence[tuple[float, int]]


class Room(NamedTuple):
    """What is left under the limits of a lane."""

    jobs: int
    rule: Rule | None = None  # the one that leaves the least
    free_in: float | None = None  # with nothing left: seconds until more may start, if known


class Limits:
    """How many more jobs the limits in force allow, during one claim or look.

    `use_of(rule, key)` asks the store, once for each; what is taken meanwhile is kept in `started`.
    `now` is the time that leases run in: no jump of a wall clock opens or shuts a window.
    """

    def __init__(
        self,
        rules: Iterable[Rule],
        use_of: Callable[[Rule, str | None], Use],
        now: float,
    ) -> None:
        self.rules = [rule for rule in rules if rule.kind is RuleKind.LIMIT]
        self.started: Counter[tuple[Rule, str | None]] = Counter()
        self._use_of = use_of
        self._now = now
        self._uses: dict[tuple[Rule, str | None], Use] = {}

    def over(self, lane: Lane, *, per_key: bool) -> list[Rule]:
        """The limits that jobs of this lane come under."""
        return [
            rule
            for rule in self.rules
            if rule.per_key is per_key
            and rule.queue in {None, lane.queue}
            and rule.task in {None, lane.task}
        ]

    def room(self, lane: Lane, most: int, key: str | None = None) -> Room:
        """How many jobs of the lane may start: of this key, or of any as far as no key matters."""
        if not self.rules or (key is None and most <= 0):
            return Room(most)
        tightest = Room(most)
        for rule in self.over(lane, per_key=key is not None):
            room = self._left(rule, key)
            if room.jobs < tightest.jobs or (room.jobs <= 0 and _is_free_later(room, tightest)):
                tightest = room
        return tightest

    def took(self, lane: Lane, jobs: int, key: str | None = None) -> None:
        """So many jobs of the lane start now, of this key."""
        for rule in self.over(lane, per_key=False):
            self.started[rule, None] += jobs
        if key is not None:
            for rule in self.over(lane, per_key=True):
                self.started[rule, key] += jobs

    def start_within(self, lane: Lane) -> float | None:
        """How long after its claim a job of the lane may begin; None: no rate says."""
        rates = [
            rule.rate
            for per_key in (False, True)
            for rule in self.over(lane, per_key=per_key)
            if rule.rate is not None
        ]
        return min((slack_of(seconds) for _, seconds in rates), default=None)

    def _left(self, rule: Rule, key: str | None) -> Room:
        use = self._uses.get((rule, key))
        if use is None:
            use = self._uses[rule, key] = self._use_of(rule, key)
        started = self.started[rule, key]
        left: list[Room] = []
        if rule.running is not None:
            left.append(Room(max(0, rule.running - use.running - started), rule))
        if rule.rate is not None:
            jobs, seconds = rule.rate
            window = seconds + slack_of(seconds)
            recent = sorted((at, count) for at, count in use.starts if at > self._now - window)
            used = sum(count for _, count in recent) + started
            free_in = window
            over = used - jobs  # after a lowering several have to pass before one may start
            for at, count in recent:
                over -= count
                if over < 0:
                    free_in = at + window - self._now
                    break
            left.append(Room(max(0, jobs - used), rule, free_in))
        # If both limits are exhausted, report the one with no known end.
        return min(left, key=lambda room: (room.jobs, -_seconds_until_free(room)))


def _seconds_until_free(room: Room) -> float:
    return float("inf") if room.free_in is None else room.free_in


def _is_free_later(room: Room, other: Room) -> bool:
    return _seconds_until_free(room) > _seconds_until_free(other)
