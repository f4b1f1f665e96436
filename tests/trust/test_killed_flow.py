"""kill -9 before any statement of a flow of three levels: it goes on as its policy says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.filter import Filter
from penstock.brokers.sqlite import SqliteBroker
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import failed, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_flow,
    a_worker,
    begun,
    claim,
    claim_for,
    part,
    settle_and_claim_for,
)
from tests.trust.dying import left_behind

NOW = 1_800_000_000.0


class World:
    """A store in which each of these can be done to a flow: the same in every process."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock(NOW)
        broker = SqliteBroker(path, clock=self.clock)
        self.fresh, self.open, self.lost = (self._flow(queue) for queue in ("fresh", "open", "bad"))
        self.asked = a_flow(
            self.clock,
            wait=part(task=WAIT_TASK, tags={TAG: "approve"}),
            ship=part("wait", queue="asked"),
        )
        self.asked.send(broker)
        self.open.send(broker)
        self.lost.send(broker)
        [bad, *others] = claim_for(broker, a_worker(), ["bad"], 10)
        broker.settle([(bad, begun(failed("no"), NOW))])
        broker.settle([(job, begun(succeeded(b"1"), NOW)) for job in others])
        self.failed = bad.id
        self.claimed = claim_for(broker, a_worker(), ["open"], 10)
        assert len(self.claimed) == 3
        broker.close()

    def _flow(self, queue: str) -> Any:
        return a_flow(
            self.clock,
            first=part(jobs=3, queue=queue),
            middle=part("first", jobs=2, queue=queue),
            anyway=part("first", on_failure="continue", queue=queue),
            last=part("middle", "anyway", queue=queue),
        )

    def settle(self, broker: SqliteBroker, outcome: Any) -> object:
        return broker.settle([(job, begun(outcome, NOW)) for job in self.claimed])


VERBS: dict[str, Callable[[SqliteBroker, World], object]] = {
    "enqueue": lambda broker, world: world.fresh.send(broker),
    "free": lambda broker, world: world.settle(broker, succeeded(b"1")),
    "cancel the rest": lambda broker, world: world.settle(broker, failed("no")),
    "settle and claim": lambda broker, world: settle_and_claim_for(
        broker, [(job, succeeded()) for job in world.claimed], a_worker(), queues=["open"], limit=4
    ),
    "lapse": lambda broker, world: broker.recover(dead="worker-1"),
    "cancel": lambda broker, world: broker.act("cancel", world.open.ids("middle", "last")),
    "delete": lambda broker, world: broker.act("delete", world.open.ids("middle", "anyway")),
    "retry": lambda broker, world: broker.act("retry", [world.failed]),
    "signal": lambda broker, world: broker.signal("approve", b"1"),
    "prune": lambda broker, world: broker.prune(NOW + 1),
}


def picture(path: Path, world: World) -> dict[str, Any]:
    broker = SqliteBroker(path, clock=world.clock)
    jobs = broker.find(Filter(), limit=1000).jobs
    flows = [flow.flow.id for flow in (world.fresh, world.open, world.lost, world.asked)]
    seen = {
        "jobs": [(job.id, job.state, job.attempt, job.reason, job.run_at) for job in jobs],
        "counts": broker.count(),
        "history": broker.history(),
        "flows": [broker.flow(flow) for flow in flows],
    }
    broker.close()
    return seen


def finish(path: Path, world: World, verb: str) -> list[Any]:
    """Do it again, as whoever was not answered would, and work off the rest; how jobs ended."""
    broker = SqliteBroker(path, clock=world.clock)
    VERBS[verb](broker, world)
    broker.signal("approve", b"1")
    broker.recover(dead="worker-1", started=[])
    while jobs := claim(broker, 10):
        assert all(broker.settle([(job, begun(succeeded(b"1"), NOW)) for job in jobs]))
    assert all(not count.total for count in broker.count())
    flows = [broker.flow(flow.flow.id) for flow in (world.fresh, world.open, world.lost)]
    assert all(flow is None or flow.ended_at is not None for flow in flows)
    ended = [(job.id, job.state) for job in broker.find(Filter(), limit=1000).jobs]
    broker.close()
    return ended


@pytest.mark.parametrize("verb", VERBS)
def test_a_flow_is_never_left_half_way(tmp_path, verb):
    """G14, G30: done or not done; and whoever does it again brings every flow to its one end.

    What two deaths left behind is looked at and worked off once, where it is the same to the byte.
    """
    original = tmp_path / "original.db"
    world = World(original)
    before = picture(original, world)
    pictures, ends = [], []

    for path in left_behind(original, world.clock, lambda broker: VERBS[verb](broker, world)):
        pictures.append(picture(path, world))
        if verb != "lapse":
            ends.append(finish(path, world, verb))

    after = pictures[-1]
    assert after != before
    assert all(each in (before, after) for each in pictures)
    assert all(end == ends[0] for end in ends)
