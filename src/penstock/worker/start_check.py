"""The checks before a job starts: not cancelled, not too late, not paused or blocked meanwhile.

A claim obeys the rules of its moment, which may change before the job starts. `last_look` comes
after `started_at` was taken: a job that passes it was recorded as started before the rule existed.
It only compares a version number while no rule changes.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from penstock.broker.protocol import Broker
from penstock.job import Job, Outcome, State, put_back
from penstock.rules.rule import Rule, RuleKind, rule_over_job
from penstock.worker.chunk import Chunk


class _RulesRead(NamedTuple):
    """The rules at a version, and when they began to be read."""

    version: int
    began: float
    rules: list[Rule]


class StartCheck:
    """Lets a job start (None), or returns its outcome instead."""

    def __init__(self, broker: Broker) -> None:
        self.version = broker.traits.rules_version
        self.heard = 0  # the version as it was at the last `hear`, for the supervisor
        self.cancelled: frozenset[str] = frozenset()  # ids, by the last renewal
        self.closed: str | None = None  # why nothing starts any more
        self._broker = broker
        self._rules: _RulesRead | None = None
        self._reading = threading.Lock()

    def hear(self) -> int:
        """The version now."""
        self.heard = self.version()
        return self.heard

    def refuse(self, chunk: Chunk, job: Job[Any], now: float) -> Outcome | None:
        """None: it may go on to `last_look`."""
        if self.closed is not None:
            return put_back(self.closed)
        if now > chunk.start_until:
            return put_back("not started in time")
        if self.cancelled and job.id in self.cancelled:
            return Outcome(State.CANCELLED, "cancelled")
        return None

    def last_look(self, rules: int, job: Job[Any]) -> Outcome | None:
        """None: no rule that holds the job back was set since this version of the rules."""
        if job.start_within is not None and self._too_late(job, job.start_within):
            return put_back("not started in time")
        if self.version() != rules:
            return self._apply_rules(job)
        return None

    def _too_late(self, job: Job[Any], within: float) -> bool:
        # By wall time, as the history: no window of it may show more starts than the rate allows.
        after = self._broker.clock.now() - (job.claimed_at or 0.0)
        return not 0 <= after <= within

    def _apply_rules(self, job: Job[Any]) -> Outcome | None:
        try:
            rule = rule_over_job(self._current(), job, self._broker.clock.now())
        except Exception:
            return put_back("rules unknown")  # the store does not answer: do not start
        if rule is None:
            return None
        return put_back("blocked" if rule.kind is RuleKind.BLOCK else "paused")

    def _current(self) -> list[Rule]:
        version, called_at = self.version(), time.monotonic()
        known = self._rules
        if known is not None and known.version == version:
            return known.rules
        with self._reading:  # hands that wait here share one read
            known = self._rules
            if known is None or known.began < called_at:
                # Version first: a change while the rules are read is noticed next time.
                version, began = self.version(), time.monotonic()
                known = self._rules = _RulesRead(version, began, self._broker.records(Rule))
        return known.rules
