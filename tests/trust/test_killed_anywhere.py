"""kill -9 before any statement of any verb: all of it happened, or nothing did."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.lake_mark import Mark
from penstock.broker.values import Batch
from penstock.broker.views import Note
from penstock.brokers.sqlite import SqliteBroker
from penstock.job import Unique, failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule, plan
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_job,
    a_schedule,
    a_worker,
    begun,
    claim_for,
    settle_and_claim_for,
    some_jobs,
)
from tests.trust.dying import left_behind

NOW = 1_800_000_000.0


class World:
    """A store with jobs in every place, and the jobs themselves: the same in every process."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock(NOW)
        broker = SqliteBroker(path, clock=self.clock)
        self.held = some_jobs(self.clock, 6)
        self.tagged = some_jobs(self.clock, 4, tags={"tenant": "a"})
        self.parcel = some_jobs(self.clock, 6, task="mail:sweep")
        self.later = a_job(self.clock, run_at=NOW + 60)
        self.unique = a_job(self.clock, unique=Unique("one"))
        self.fresh = [
            *some_jobs(self.clock, 5, task="media:resize"),
            a_job(self.clock, task="media:resize", tags={"tenant": "b"}, unique=Unique("two")),
        ]
        self.ended = a_job(self.clock, task="media:resize", tags={"tenant": "c"})
        broker.enqueue([self.ended])
        [job] = claim_for(broker, a_worker("worker-0"))
        broker.settle([(job, begun(failed("ValueError"), NOW))])
        broker.enqueue([*self.held, *self.tagged, *self.parcel, self.later, self.unique])
        tasks = {"mail:send": 1}
        self.claimed = claim_for(broker, a_worker(tasks=tasks), limit=10)
        assert len(self.claimed) == 10
        self.schedule = broker.put(a_schedule(at_once=True))
        staged = [*some_jobs(self.clock, 5), a_job(self.clock, key="ada", tags={"tenant": "d"})]
        broker.stage("write-1", "0/1", staged)
        broker.stage("write-1", "0/2", some_jobs(self.clock, 3))
        broker.put(Mark(lake="lake-1", hold=0.0))
        broker.close()


def outcomes(world: World) -> list[Any]:
    kinds = [succeeded(b"1"), failed("ValueError"), try_again("OSError", NOW + 5)]
    return [(job, begun(kinds[place % 3], NOW)) for place, job in enumerate(world.claimed)]


def decisions(world: World) -> list[Any]:
    """A slot that is due, and a job that makes room for it."""
    [enqueued] = plan(world.schedule, NOW).decisions
    return [msgspec.structs.replace(enqueued, cancels=world.later.id)]


VERBS: dict[str, Callable[[SqliteBroker, World], object]] = {
    "enqueue": lambda broker, world: broker.enqueue(world.fresh),
    "enqueue in part known": lambda broker, world: broker.enqueue([*world.parcel, *world.fresh]),
    "enqueue a batch": lambda broker, world: broker.enqueue(world.fresh, batch=Batch("b", 0)),
    "claim": lambda broker, world: claim_for(broker, a_worker("worker-2"), limit=4),
    "settle": lambda broker, world: broker.settle(outcomes(world)),
    "settle and claim": lambda broker, world: settle_and_claim_for(
        broker, outcomes(world), a_worker(), limit=4
    ),
    "note": lambda broker, world: broker.note(world.claimed[0], Note("progress", "", b"0.5")),
    "recover": lambda broker, world: broker.recover(dead="worker-1"),
    "cancel": lambda broker, world: broker.act(
        "cancel", [world.parcel[2].id, world.claimed[0].id, world.later.id, world.unique.id]
    ),
    "retry": lambda broker, world: broker.act("retry", [world.ended.id, world.later.id]),
    "delete": lambda broker, world: broker.act(
        "delete", [world.parcel[3].id, world.ended.id, world.later.id]
    ),
    "set a rule": lambda broker, world: broker.put(Rule(RuleKind.PAUSE, queue="default")),
    "put a schedule": lambda broker, world: broker.put(a_schedule("another")),
    "change a schedule": lambda broker, world: broker.put(a_schedule(every=5.0)),
    "clear a schedule": lambda broker, world: broker.clear(Schedule, "hourly"),
    "decide a slot": lambda broker, world: broker.decide_schedule(world.schedule, decisions(world)),
    "set a mark": lambda broker, world: broker.put(Mark(lake="lake-2")),
    "clear a mark": lambda broker, world: broker.clear(Mark, "lake-1"),
    "renew": lambda broker, world: broker.renew([a_worker()], holding=[world.claimed[0].id]),
    "stage": lambda broker, world: broker.stage("write-2", "0/1", world.fresh),
    "publish": lambda broker, world: broker.commit_write("write-1", {"0/1": 6}),
    "discard": lambda broker, world: broker.discard("write-1"),
    "prune": lambda broker, world: broker.prune(NOW + 1),
}


def picture(path: Path, world: World) -> dict[str, Any]:
    """All that can be seen of the store."""
    broker = SqliteBroker(path, clock=world.clock)
    jobs = broker.find(Filter(), limit=1000).jobs
    seen = {
        "jobs": [
            (job.id, job.state, job.attempt, job.failures, job.lapses, job.run_at, job.worker)
            for job in jobs
        ],
        "counts": broker.count(),
        "rules": broker.records(Rule),
        "schedules": broker.records(Schedule),
        "marks": broker.records(Mark),
        "history": broker.history(),
        "batch": broker.enqueue([], batch=Batch("b")).batch,
        "notes": [broker.notes(job.id) for job in jobs],
        "workers": [(row.id, row.running) for row in broker.workers()],
    }
    broker.close()
    total = sum(count.total + count.failed for count in seen["counts"])
    gone = {"succeeded", "cancelled"}
    assert total == sum(job.state not in gone for job in jobs)
    raw = sqlite3.connect(path)
    seen["staged"] = raw.execute("select write, part, id, jobs from penstock_staged").fetchall()
    seen["published"] = raw.execute("select write, jobs from penstock_published").fetchall()
    raw.close()
    return seen


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_done_or_not_done(tmp_path, verb):
    original = tmp_path / "original.db"
    world = World(original)
    before = picture(original, world)

    left = left_behind(original, world.clock, lambda broker: VERBS[verb](broker, world))
    pictures = [picture(path, world) for path in left]

    after = pictures[-1]
    assert after != before
    assert all(each in (before, after) for each in pictures)
    assert before in pictures


def test_what_was_cut_off_can_be_sent_again(tmp_path):
    original = tmp_path / "original.db"
    world = World(original)

    for path in left_behind(original, world.clock, lambda broker: broker.enqueue(world.fresh)):
        broker = SqliteBroker(path, clock=world.clock)
        broker.enqueue(world.fresh)
        claimed = claim_for(broker, a_worker("worker-2", tasks={"media:resize": 1}), limit=100)
        assert sorted(job.id for job in claimed) == sorted(job.id for job in world.fresh)
        broker.close()
