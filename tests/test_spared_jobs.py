"""Jobs that a silent worker held and had not begun: what it costs to run them after all."""

from __future__ import annotations

from typing import Any

from penstock import App, State
from penstock.broker.values import Wanted
from penstock.job import Job
from penstock.testing.conformance.factories import a_worker
from penstock.worker.claim_plan import ClaimPlan
from tests.workers import drain, until

HELD = 1024


def test_a_held_backlog_is_worked_off_by_the_hundred(store_app: App):
    """One at a time they took 65 times as long as without the crash."""

    @store_app.task(name="count")
    def count(n: int) -> int:
        return n

    handles = store_app.enqueue([count.job(n) for n in range(HELD)])
    broker = store_app.broker
    silent = a_worker("silent", tasks={"count": 1}, lease=1.0, began=())
    held = list(iter(lambda: broker.claim([Wanted(silent, HELD)]).jobs[0], []))
    assert sum(map(len, held)) == HELD
    recovered: list[int] = []
    until(broker, lambda: recovered.append(broker.recover()) or sum(recovered) == HELD)
    claims = claims_of(store_app)

    drain(store_app)

    # About 14; more on a slow machine, where a worker claims fewer at a time.
    assert len([jobs for jobs in claims if jobs]) <= HELD / 4
    for handle in handles[::128]:
        job = broker.get(handle.id)
        assert (job.state, job.lapses) == (State.SUCCEEDED, 0)


def claims_of(app: App) -> list[int]:
    """How many jobs each claim from now on is handed."""
    claims: list[int] = []
    claim = app.broker.claim

    def counted(*arguments: Any) -> Any:
        claimed = claim(*arguments)
        claims.append(len(claimed.jobs[0]))
        return claimed

    app.broker.claim = counted
    return claims


def test_they_are_handed_to_threads_together():
    plan = ClaimPlan(threads=10, async_slots=10, processes=True, apart=True)
    plan.set_tasks({"count": "thread"})
    plan.claim_size("count").ran(100, 0.001)  # quick jobs
    [request] = plan.requests(now=0.0)

    [chunk] = plan.take([Job(task="count", spared=1) for _ in range(8)], request, 0, now=0.0)

    assert len(chunk.jobs) == 8
    assert not chunk.own_process
