"""The check before a job starts (is it paused, blocked, cancelled?), and a last one at its call.

A claim obeys the rules of its moment; between the claim and the start they may change, the job may
be cancelled, or its turn may have come too late. The last look comes after `started_at` was taken:
a job that passes it was recorded as started before the rule was there. Cheap when nothing changed.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from penstock.broker.protocol import Broker
from penstock.job import Job, Outcome, State, put_back
from penstock.rules.rule import Rule, RuleKind, rule_over_job
from penstock.worker.chunk import Chunk


class _Known(NamedTuple):
    """The rules at a version, and when reading them began."""

    version: int
    began: float
    rules: list[Rule]


class StartCheck:
    """Lets a job start, or says what becomes of it instead."""

    def __init__(self, broker: Broker) -> None:
        self.version = broker.traits.rules_version
        self.cancelled: frozenset[str] = frozenset()  # as the last renewal said
        self.closed: str | None = None  # why nothing starts any more
        self._broker = broker
        self._rules: _Known | None = None
        self._reading = threading.Lock()

    def refuse(self, chunk: Chunk, job: Job[Any], now: float) -> Outcome | None:
        """None: it may go on to its last look."""
        if self.closed is not None:
            return put_back(self.closed)
        if now > chunk.start_until:
            return put_back("not started in time")
        if self.cancelled and job.id in self.cancelled:
            return Outcome(State.CANCELLED, "cancelled")
        return None

    def last_look(self, rules: int, job: Job[Any]) -> Outcome | None:
        """None: no rule has come since this version of them that keeps the job back."""
        if job.start_within is not None and self._too_late(job, job.start_within):
            return put_back("not started in time")
        if self.version() != rules:
            return self._obey(job)
        return None

    def _too_late(self, job: Job[Any], within: float) -> bool:
        # By the clock that the history has: its windows are to show no more starts than the rate.
        after = self._broker.clock.now() - (job.claimed_at or 0.0)
        return not 0 <= after <= within

    def _obey(self, job: Job[Any]) -> Outcome | None:
        try:
            rule = rule_over_job(self._current(), job, self._broker.clock.now())
        except Exception:
            return put_back("rules unknown")  # the store does not answer: better not to start
        if rule is None:
            return None
        return put_back("blocked" if rule.kind is RuleKind.BLOCK else "paused")

    def _current(self) -> list[Rule]:
        version, asked = self.version(), time.monotonic()
        known = self._rules
        if known is not None and known.version == version:
            return known.rules
        with self._reading:  # hands that wait here share what is read after they asked
            known = self._rules
            if known is None or known.began < asked:
                # Before the rules themselves: a change in between is seen again.
                version, began = self.version(), time.monotonic()
                known = self._rules = _Known(version, began, self._broker.records(Rule))
        return known.rules
