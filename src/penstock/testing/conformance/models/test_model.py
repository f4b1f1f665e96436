"""Model: random operations on a broker and on the memory broker; both agree at every step.

The memory broker is the plainest reading of the protocol. What is compared is what a caller can
see, but for positions and the times of history rows, which each store sets by itself.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.broker.filter import Filter, parse_filter
from penstock.broker.lake_mark import Mark
from penstock.broker.position import BEGINNING
from penstock.broker.protocol import Broker
from penstock.broker.views import Note
from penstock.brokers.memory import MemoryBroker
from penstock.job import Job, Outcome, State, Unique, failed, lapsed, put_back, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_worker, claim_for
from penstock.testing.conformance.models.agreeing import agree, fewer_apart

QUEUES = st.sampled_from(["mail", "media"])
TASKS = st.sampled_from(["mail:send", "mail:sweep"])
WORKERS = st.sampled_from(["worker-1", "worker-2", "worker-3"])
MAYBE = st.booleans()
EXAMPLES = 60


@st.composite
def lanes(draw) -> dict[str, Any]:
    return {
        "task": draw(TASKS),
        "queue": draw(QUEUES),
        "priority": draw(st.sampled_from([0, 0, 0, 5, -3])),
        "version": draw(st.sampled_from([1, 1, 1, 2])),
        "runs_on": draw(st.sampled_from([(), (), (), ("gpu",)])),
    }


@st.composite
def extras(draw, now: float) -> dict[str, Any]:
    """What makes a job travel alone."""
    fields: dict[str, Any] = {}
    if draw(MAYBE):
        fields["run_at"] = now + draw(st.sampled_from([-5.0, 0.0, 30.0, 300.0]))
    if draw(MAYBE):
        fields["tags"] = {"tenant": draw(st.sampled_from("ab"))}
        fields["key"] = draw(st.sampled_from([None, "k1", "k2"]))
    if draw(MAYBE):
        fields["unique"] = Unique(
            draw(st.sampled_from("kl")),
            draw(st.sampled_from(["started", "ended", "time"])),
            draw(st.sampled_from([20.0, 200.0])),
        )
    elif draw(MAYBE):
        fields["unique"] = Unique(draw(st.sampled_from("kl")))
    if draw(st.integers(0, 3)) == 0:
        fields["expires_at"] = now + draw(st.sampled_from([10.0, 100.0]))
    fields["at_most_once"] = draw(st.integers(0, 3)) == 0
    return fields


@st.composite
def outcomes(draw, now: float) -> Outcome:
    made = draw(
        st.sampled_from(
            [
                succeeded(b"1"),
                Outcome(State.SUCCEEDED, keep=False),
                Outcome(State.SUCCEEDED, result=b"2", keep_for=50.0),
                Outcome(State.FAILED, "error", error="boom", failures=1, keep_for=500.0),
                failed("boom"),
                Outcome(State.FAILED, "error", error="boom", failures=1, keep=False),
                Outcome(State.CANCELLED, "cancelled"),
                Outcome(State.READY, "error", error="boom", run_at=now + 60, failures=1),
                Outcome(State.READY, "repeat", repeats=1),
                put_back("limit"),
                put_back("later", now + 20),
                lapsed(),
            ]
        )
    )
    return msgspec.structs.replace(made, started_at=now - 1) if draw(MAYBE) else made


class Agreement(RuleBasedStateMachine):
    """The same calls to two brokers on one clock."""

    make: Any

    @initialize()
    def open(self) -> None:
        self.clock = Clock(1_800_000_000.0)
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-model-"))
        self.model: Broker = MemoryBroker(self.clock)
        self.broker: Broker = type(self).make(self.folder, self.clock)
        self.made = 0
        self.sent: list[Job[Any]] = []
        self.claims: list[tuple[Job[Any], Job[Any]]] = []

    def teardown(self) -> None:
        if hasattr(self, "broker"):
            self.broker.close()
            self.model.close()
            shutil.rmtree(self.folder)

    def both(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call both; the answers must be equal."""
        # Time passes, so that what happened before has another time than what comes now.
        self.clock.advance(seconds=0.25)
        expected = getattr(self.model, verb)(*arguments, **options)
        found = getattr(self.broker, verb)(*arguments, **options)
        assert found == expected, verb
        return found

    def neighbours(self, count: int, **fields: Any) -> list[Job[Any]]:
        """Jobs with ids that follow on from one another; nothing in them is left to chance."""
        self.made += 1
        time = f"{int(self.clock.now() * 1000):012x}"
        head = f"{time[:8]}-{time[8:]}-7000-8000-{self.made:09x}"
        return [
            Job(id=f"{head}{offset:03x}", body=b'{"args":{"n":%d}}' % offset, **fields)
            for offset in range(count)
        ]

    def some_ids(self, data: st.DataObject) -> list[str]:
        picked = data.draw(st.lists(st.integers(0, len(self.sent) - 1), min_size=1, max_size=4))
        return [self.sent[index].id for index in picked]

    @rule(lane=lanes(), count=st.integers(1, 6))
    def enqueue_neighbours(self, lane: dict[str, Any], count: int) -> None:
        jobs = self.neighbours(count, **lane)
        self.both("enqueue", jobs)
        self.sent += jobs

    @rule(lane=lanes(), data=st.data())
    def enqueue_one(self, lane: dict[str, Any], data: st.DataObject) -> None:
        jobs = self.neighbours(1, **lane, **data.draw(extras(self.clock.now())))
        self.both("enqueue", jobs)
        self.sent += jobs

    @precondition(lambda self: self.sent)
    @rule(start=st.integers(0, 50), count=st.integers(1, 5))
    def enqueue_again(self, start: int, count: int) -> None:
        start %= len(self.sent)
        self.both("enqueue", self.sent[start : start + count])

    @rule(
        worker=WORKERS,
        limit=st.integers(0, 6),
        queues=st.sampled_from([None, None, ["mail"]]),
        sizes=st.sampled_from([None, None, {"mail:send": 2, "mail:sweep": 1}]),
        gpu=MAYBE,
        new=MAYBE,
    )
    def claim(self, *, worker: str, limit: int, queues: Any, sizes: Any, gpu: bool, new: bool):
        row = a_worker(
            worker,
            tasks={"mail:send": 1 + new, "mail:sweep": 1 + new},
            tags=frozenset({"gpu"} if gpu else ()),
        )
        # How much of a lease a claim renews is the store's own affair; a renewal is exact.
        self.both("renew", [row])
        expected = claim_for(self.model, row, queues, limit, sizes)
        found = claim_for(self.broker, row, queues, limit, sizes)
        pairs = {(job.id, job.attempt): job for job in found}
        assert {key: seen(job) for key, job in pairs.items()} == {
            (job.id, job.attempt): seen(job) for job in expected
        }
        self.claims += [(job, pairs[job.id, job.attempt]) for job in expected]

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        picks = data.draw(st.lists(st.integers(0, len(self.claims) - 1), min_size=1, max_size=4))
        chosen = [
            (*self.claims[-1 - pick], data.draw(outcomes(self.clock.now()))) for pick in picks
        ]
        self.clock.advance(seconds=0.25)
        expected = self.model.settle([(mine, outcome) for mine, _, outcome in chosen])
        found = self.broker.settle([(theirs, outcome) for _, theirs, outcome in chosen])
        assert found == expected

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), kind=st.sampled_from(["progress", "snapshot", "event"]))
    def note(self, data: st.DataObject, kind: str) -> None:
        mine, theirs = data.draw(st.sampled_from(self.claims))
        note = Note(kind, "x", b"1")
        assert self.broker.note(theirs, note) == self.model.note(mine, note)
        if self.model.get(mine.id):  # when those of a job that is gone go is the store's affair
            assert self.broker.notes(mine.id) == self.model.notes(mine.id)

    @rule(worker=WORKERS, forgets=MAYBE)
    def renew(self, worker: str, forgets: bool) -> None:
        held = [mine.id for mine, _ in self.claims if mine.worker == worker]
        self.both("renew", [a_worker(worker)], holding=held[::2] if forgets else None)

    @rule(by=st.sampled_from([None, "worker-1", "worker-2"]))
    def recover(self, by: str | None) -> None:
        self.both("recover", by=by)

    @rule(worker=WORKERS, knows=MAYBE)
    def recover_dead(self, worker: str, knows: bool) -> None:
        held = [mine.id for mine, _ in self.claims if mine.worker == worker]
        self.both("recover", dead=worker, started=held[::2] if knows else None)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), verb=st.sampled_from(["cancel", "retry", "delete"]))
    def look_after(self, data: st.DataObject, verb: str) -> None:
        self.both("act", verb, self.some_ids(data), "ada", "because")

    @rule(
        kind=st.sampled_from([RuleKind.PAUSE, RuleKind.BLOCK]),
        queue=st.sampled_from([None, "mail"]),
        task=st.sampled_from([None, "mail:send"]),
        seconds=st.sampled_from([None, 30.0]),
        some=st.sampled_from([{}, {}, {"version": 1}, {"tag": ("tenant", "a")}, {"key": "k1"}]),
    )
    def set_rule(self, kind: RuleKind, queue: Any, task: Any, seconds: Any, some: Any) -> None:
        until = seconds and self.clock.now() + seconds
        self.both("put", Rule(kind, queue, task, "ada", "because", until=until, **some))

    @rule(
        queue=st.sampled_from([None, "mail"]),
        task=st.sampled_from([None, "mail:send"]),
        seconds=st.sampled_from([None, 30.0]),
        numbers=st.sampled_from(
            [{"running": 2}, {"running": 1, "rate": (3, 5.0)}, {"rate": (2, 60.0)}]
        ),
        per_key=st.booleans(),
    )
    def set_limit(self, queue: Any, task: Any, seconds: Any, numbers: Any, per_key: Any) -> None:
        until = seconds and self.clock.now() + seconds
        limit = Rule(RuleKind.LIMIT, queue, task, until=until, per_key=per_key, **numbers)
        self.both("put", limit)

    @precondition(lambda self: self.model.records(Rule))
    @rule(pick=st.integers(0, 5))
    def clear_rule(self, pick: int) -> None:
        rules = self.model.records(Rule)
        chosen = rules[pick % len(rules)]
        self.both("clear", Rule, chosen.id, "bob")

    @rule(seconds=st.sampled_from([1.0, 7.0, 16.0, 61.0, 600.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @rule(lake=st.sampled_from(["a", "b"]), share=st.integers(0, 4))
    def set_mark(self, lake: str, share: int) -> None:
        for broker in (self.model, self.broker):
            known = lake in {mark.lake for mark in broker.records(Mark)}
            rows = [BEGINNING, *(row.position for row in broker.history(limit=10**6))]
            position = rows[(len(rows) - 1) * share // 4] if known else BEGINNING
            broker.put(Mark(lake=lake, position=position, hold=500.0))

    @rule(lake=st.sampled_from(["a", "b"]))
    def clear_mark(self, lake: str) -> None:
        self.both("clear", Mark, lake)

    @rule(age=st.sampled_from([100.0, 1000.0]))
    def prune(self, age: float) -> None:
        before = self.clock.now() - age
        self.model.prune(before)
        self.broker.prune(before)
        # An id older than this is refused from now on: nobody sends it again.
        self.sent = [
            job for job in self.sent if (self.model.get(job.id) or job).enqueued_at > before
        ]

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "broker"):
            return
        for broker in (self.model, self.broker):
            broker.recover(dead="nobody")  # only ends what has expired
        for job in self.sent:
            mine, theirs = self.model.get(job.id), self.broker.get(job.id)
            assert seen(theirs) == seen(mine)
            assert [told(row) for row in self.broker.history(job=job.id)] == [
                told(row) for row in self.model.history(job=job.id)
            ]
        for job in self.sent[-3:]:
            assert self.broker.why(job.id).cause == self.model.why(job.id).cause
        everything = [broker.find(Filter(), limit=1000) for broker in (self.model, self.broker)]
        mine, theirs = ([job.id for job in page.jobs] for page in everything)
        assert theirs == mine
        for due in ("now", "later"):
            wanted = parse_filter([f"due:{due}"], self.clock.now())
            mine, theirs = (
                [job.id for job in broker.find(wanted, limit=1000).jobs]
                for broker in (self.model, self.broker)
            )
            assert theirs == mine
        assert len(mine) == sum(count.scheduled for count in self.model.count())
        assert sorted(self.broker.count(), key=str) == sorted(self.model.count(), key=str)
        rules = [(r.kind, r.queue, r.task, r.until, r.created_at) for r in self.model.records(Rule)]
        assert sorted(
            ((r.kind, r.queue, r.task, r.until, r.created_at) for r in self.broker.records(Rule)),
            key=str,
        ) == sorted(rules, key=str)
        assert [missed(mark) for mark in self.broker.records(Mark)] == [
            missed(mark) for mark in self.model.records(Mark)
        ]
        assert [(row.id, row.alive, row.running) for row in self.broker.workers()] == [
            (row.id, row.alive, row.running) for row in self.model.workers()
        ]


def seen(job: Job[Any] | None) -> Any:
    """What a caller may rely on, of a job in its state."""
    if job is None:
        return None
    same = (job.id, job.task, job.queue, job.version, job.priority, job.state, job.attempt)
    same += (job.enqueued_at, job.body, job.result, job.tags, job.key)
    same += (job.failures, job.lapses, job.repeats)
    if job.state is State.SUCCEEDED:
        return same
    counted = (job.reason, job.error)
    asked = (job.run_at, job.unique, job.runs_on, job.expires_at, job.at_most_once, job.key)
    held = (job.worker, job.claimed_at) if job.state is State.RUNNING else ()
    return same + counted + (asked if job.state is State.READY else ()) + held


def missed(mark: Mark) -> Any:
    """What a mark says but for positions, which are each store's own."""
    return (mark.lake, mark.told_at, mark.gap and mark.gap.rows)


def told(row: Any) -> Any:
    """What the history says; a reason is promised where a job ended or was put back."""
    reason = row.reason if row.kind in {"attempt", "cancel"} else None
    counted = (row.failures, row.lapses, row.key)
    ended = (row.error, row.body, row.result, row.data)
    return (row.kind, row.attempt, row.state, reason, *counted, *ended)


def test_every_broker_agrees_with_memory(fresh_broker):
    """B2, B36, B43, B44, C4: one meaning, whatever the store. The same steps in every run."""
    examples = fewer_apart(fresh_broker, EXAMPLES, 3)
    agree(Agreement, fresh_broker, examples, derandomize=True)
