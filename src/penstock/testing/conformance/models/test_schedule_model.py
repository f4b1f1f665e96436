"""Model of schedules: put, cleared, decided by two who read them at different times; all agree.

As test_model, whose operations go on in between: jobs of slots are taken, cancelled, deleted and
pruned while the next slots fall due.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from penstock.job import ENDED
from penstock.schedules.schedule import Decision, Schedule, plan
from penstock.testing.conformance.factories import a_schedule
from penstock.testing.conformance.models.agreeing import agree, fewer_apart
from penstock.testing.conformance.models.test_model import MAYBE, Agreement, told

NAMES = st.sampled_from(["first", "second"])
EXAMPLES = 20


class ScheduleAgreement(Agreement):
    """Schedules as well as jobs."""

    @property
    def read(self) -> list[tuple[Schedule, Schedule]]:
        """The schedules as somebody read them a while ago, from both brokers."""
        self.__dict__.setdefault("_read", [])
        return self.__dict__["_read"]

    @rule(
        name=NAMES,
        times=st.sampled_from([{"every": 5.0}, {"every": 60.0}, {"cron": "*/2 * * * *"}]),
        missed=st.sampled_from(["one", "skip", "all"]),
        overlap=st.sampled_from(["allow", "skip", "cancel"]),
        at_once=MAYBE,
        paused=st.sampled_from([False, False, True]),
    )
    def put_schedule(self, name: str, times: Any, **options: Any) -> None:
        schedule = a_schedule(name, "mail:sweep", window=200.0, **times, **options)
        self.both("put", schedule, "ada")

    @rule(name=NAMES)
    def clear_schedule(self, name: str) -> None:
        self.both("clear", Schedule, name, "ada")

    @rule()
    def read_schedules(self) -> None:
        """Kept for later, when somebody else may have been quicker."""
        mine, theirs = self.model.records(Schedule), self.broker.records(Schedule)
        assert theirs == mine
        self.read[:] = zip(mine, theirs, strict=True)

    @precondition(lambda self: self.read)
    @rule(pick=st.integers(0, 1))
    def decide_schedule(self, pick: int) -> None:
        mine, theirs = self.read[pick % len(self.read)]
        self.decide(mine, theirs)

    @precondition(lambda self: self.model.records(Schedule))
    @rule(pick=st.integers(0, 1))
    def decide_what_is_due(self, pick: int) -> None:
        kept = self.model.records(Schedule)
        mine = kept[pick % len(kept)]
        [theirs] = [each for each in self.broker.records(Schedule) if each.name == mine.name]
        assert theirs == mine
        self.decide(mine, theirs)

    def decide(self, mine: Schedule, theirs: Schedule) -> None:
        last = None if mine.last_job is None else self.model.get(mine.last_job)
        unended = last is not None and last.state not in ENDED
        decisions = plan(mine, self.clock.now(), unended=unended).decisions
        if not decisions:
            return
        expected = self.model.decide_schedule(mine, decisions)
        assert self.broker.decide_schedule(theirs, decisions) == expected
        if expected:
            self.sent += self.jobs_of(decisions)

    def jobs_of(self, decisions: tuple[Decision, ...]) -> list[Any]:
        known = {job.id for job in self.sent}
        made = [decision.job for decision in decisions if decision.job is not None]
        return [job for job in made if job.id not in known]

    @invariant()
    def agree_on_schedules(self) -> None:
        if not hasattr(self, "broker"):
            return
        assert self.broker.records(Schedule) == self.model.records(Schedule)
        mine, theirs = (
            [told(row) for row in broker.history(limit=10_000) if row.kind == "schedule"]
            for broker in (self.model, self.broker)
        )
        assert theirs == mine


def test_every_broker_agrees_with_memory_about_schedules(fresh_broker):
    """D10, D11, D60, D61, G32: each slot is decided once, whatever becomes of its job."""
    examples = fewer_apart(fresh_broker, EXAMPLES, 5)
    agree(ScheduleAgreement, fresh_broker, examples, derandomize=True)
