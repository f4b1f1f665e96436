"""The timetable: the schedules as this worker last read them, and what falls due.

No leader: every worker keeps one, and whoever comes first decides a slot. The store's revision is
the fence, so a worker that comes second is told so and goes on. A schedule from the code is decided
only by workers whose code has it: when the last of them is gone, it is due no more. If two workers
declare it differently, as during a deploy, the last declaration stands while its worker is alive.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

import msgspec

from penstock.app.clock import AnyClock
from penstock.broker.protocol import Broker
from penstock.enqueue.tracing import NotSent
from penstock.errors import Refused
from penstock.job import ENDED, Job
from penstock.rules.rule import Rule, frozen
from penstock.schedules.schedule import (
    LATE,
    Decision,
    Plan,
    Schedule,
    holds,
    plan,
    replaced,
    slots_after,
)

HEAR_SECONDS = 5.0  # how soon a schedule that another process put is noticed
LOOK_SECONDS = 15.0  # schedules are read at least this often
_LAG_SECONDS = 0.2  # a fleet does not come to the store all at once
_MOST_PLANS = 20  # for one schedule in one turn

# What no other worker could decide either, in contrast to a store that does not answer.
_UNDECIDABLE = (Refused, KeyError, TypeError, ValueError, msgspec.MsgspecError)

log = logging.getLogger("penstock.worker")


# Around what stores these jobs; gives them as they are to be stored (`App.sending`).
Sending = Callable[[Sequence[Job[Any]]], AbstractContextManager[Sequence[Job[Any]]]]


class Due(NamedTuple):
    at: float
    schedule: Schedule


class Timetable:
    """`turn` decides what is due; `seconds_left` says when to come again."""

    def __init__(
        self,
        broker: Broker,
        clock: AnyClock,
        declared: Callable[[], Mapping[str, Schedule]],
        worker_id: str = "",
        sending: Sending = nullcontext,
    ) -> None:
        self._sending = sending
        self._broker = broker
        self._worker_id = worker_id
        self._clock = clock
        self._declared = declared  # from this worker's own code
        self._put: dict[str, Schedule] = {}
        self._next: list[Due] = []
        self._look_at = self._hear_at = -math.inf
        self._heard = 0
        self._lag = random.uniform(0, _LAG_SECONDS)  # noqa: S311  not a secret
        self._first: dict[str, tuple[Schedule, float | None]] = {}

    def turn(self, patience: float = math.inf) -> int:
        """Decide the slots that are due; returns how many jobs were enqueued.

        After `patience` seconds it leaves the rest for another turn.
        """
        self._put_declared()
        now, monotonic = self._clock.now(), self._clock.monotonic()
        self._hear_at = monotonic + HEAR_SECONDS
        if (
            monotonic < self._look_at
            and self._heard == self._broker.traits.rules_version()
            and not any(due.at <= now for due in self._next)
        ):
            return 0
        # Read again before anything is decided: mostly somebody else was quicker.
        self._read()
        due = [each.schedule for each in self._next if each.at <= now]
        if due and frozen(self._broker.records(Rule), now) is not None:
            self._next = []  # until the rules change; then as each schedule says of missed slots
            return 0
        random.shuffle(due)  # those who come at the same time begin at different ends
        made, until = 0, time.monotonic() + patience
        for schedule in due:
            made += self._decide(schedule)
            if time.monotonic() > until:
                break
        if due:
            self._read()
        return made

    def seconds_left(self) -> float:
        """How long nothing is due here."""
        first = min((due.at for due in self._next), default=math.inf)
        return max(
            0.0,
            min(
                min(self._hear_at, self._look_at) - self._clock.monotonic(),
                first + self._lag - self._clock.now(),
            ),
        )

    def _put_declared(self) -> None:
        declared = self._declared()
        new = [each for name, each in declared.items() if self._put.get(name) is not each]
        if not new:
            return
        kept = {each.name: each for each in self._broker.records(Schedule)}
        for schedule in new:
            before = kept.get(schedule.name)
            # Mostly it is there, as it is: then nobody waits for the right to write.
            if before is None or replaced(before, schedule, 0.0) is not before:
                put(self._broker, msgspec.structs.replace(schedule, put_by=self._worker_id))
            self._put[schedule.name] = schedule
        self._look_at = -math.inf

    def _read(self) -> None:
        heard = self._broker.traits.rules_version()  # before the look: a change in between is seen
        kept = self._broker.records(Schedule)
        still_put = {each.name for each in kept if not self._is_of_gone_worker(each)}
        # Only now: a store that does not answer must find what is due still due.
        self._look_at, self._heard = self._clock.monotonic() + LOOK_SECONDS, heard
        known, self._first, self._next = self._first, {}, []
        for schedule in kept:
            if schedule.from_code and schedule.name not in self._put:
                continue
            before = known.get(schedule.name)
            if before is None or not holds(before[0], schedule):
                before = (schedule, self._first_slot(schedule))
            self._first[schedule.name] = before
            if before[1] is not None:
                self._next.append(Due(before[1], before[0]))
            elif schedule.name.startswith(LATE) and schedule.decided_until >= (schedule.at or 0.0):
                self._broker.clear(Schedule, schedule.name)  # its job is there
        # Put again what was removed, was put by a worker that is gone, or is in another store.
        self._put = {name: each for name, each in self._put.items() if name in still_put}

    def _is_of_gone_worker(self, kept: Schedule) -> bool:
        """Whether it is stored differently than declared here, by a worker that is gone."""
        own = self._put.get(kept.name)
        if own is None or replaced(kept, own, 0.0) is kept or kept.put_by == self._worker_id:
            return False
        return all(row.id != kept.put_by for row in self._broker.workers() if row.alive)

    def _first_slot(self, schedule: Schedule) -> float | None:
        try:
            return next(slots_after(schedule, schedule.decided_until), None)
        except Exception as error:
            # One that cannot be read here, a zone that this machine does not know, stops no other.
            log.error("schedule %s is not decided here: %s", schedule.name, error)  # noqa: TRY400
            return None

    def _decide(self, schedule: Schedule) -> int:
        made = 0
        for _ in range(_MOST_PLANS):
            try:
                planned, held = decide(self._broker, schedule, self._sending)
            except _UNDECIDABLE as error:
                # Set aside until it is changed: one damaged schedule must not stop a worker.
                self._first[schedule.name] = (schedule, None)
                log.error("schedule %s cannot be decided: %s", schedule.name, error)  # noqa: TRY400
                return made
            if held:
                made += sum(decision.job is not None for decision in planned.decisions)
            if not held or not planned.more:
                return made
            schedule = named(self._broker, schedule.name) or schedule
        self._look_at = -math.inf  # there is more: come again soon
        return made


def decide(broker: Broker, schedule: Schedule, sending: Sending = nullcontext) -> tuple[Plan, bool]:
    """Decide what is due of a schedule that was just read; False if somebody else has."""
    unended = False
    if schedule.overlap != "allow" and schedule.last_job is not None:
        last = broker.get(schedule.last_job)
        unended = last is not None and last.state not in ENDED
    planned = plan(schedule, broker.clock.now(), unended=unended)
    held = bool(planned.decisions) and _record_decisions(
        broker, schedule, planned.decisions, sending
    )
    if held:
        for decision in planned.decisions:
            log.info("schedule %s: %s (%d)", schedule.name, decision.says, decision.slots)
    return planned, held


def _record_decisions(
    broker: Broker, schedule: Schedule, decisions: Sequence[Decision], sending: Sending
) -> bool:
    jobs = [decision.job for decision in decisions if decision.job is not None]
    if not jobs:
        return broker.decide_schedule(schedule, decisions)
    with suppress(NotSent), sending(jobs) as sent:
        traced = iter(sent)
        decisions = [
            each if each.job is None else msgspec.structs.replace(each, job=next(traced))
            for each in decisions
        ]
        if broker.decide_schedule(schedule, decisions):
            return True
        raise NotSent
    return False


def put(broker: Broker, schedule: Schedule, author: str = "", reason: str = "") -> Schedule:
    """Put a schedule; what was due of the one that it replaces is decided first."""
    before = named(broker, schedule.name)
    if before is not None:
        with suppress(*_UNDECIDABLE):  # it cannot be read here, and is to be replaced
            decide_all(broker, before)
    return broker.put(schedule, author, reason)


def decide_all(broker: Broker, schedule: Schedule) -> None:
    """Decide everything that is due of a schedule."""
    current: Schedule | None = schedule
    while current is not None and decide(broker, current)[0].more:
        current = named(broker, schedule.name)


def named(broker: Broker, name: str) -> Schedule | None:
    """The schedule of this name, as it is kept."""
    return next((each for each in broker.records(Schedule) if each.name == name), None)
