"""Arguments that this release cannot read are put back while another one is alive, and bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import App, Job
from penstock.brokers.memory import MemoryBroker
from penstock.job import State
from penstock.run.attempt import run
from penstock.run.other_release import MOST_TIMES
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_worker, claim_for


@pytest.fixture
def app(clock: Clock) -> App:
    return App(broker=MemoryBroker(clock))


def unreadable(app: App) -> tuple[Any, Job[Any]]:
    @app.task(name="send")
    def send(number: int) -> None: ...

    job = msgspec.structs.replace(send.job(1), body=b'{"args":{"number":"A-1"}}')
    app.broker.enqueue([job])
    return send, job


def attempt(app: App, task: Any) -> Any:
    """Claim the job and run it, as this release."""
    row = a_worker("this", tasks={"send": 1}, code=app.code)
    [job] = claim_for(app.broker, row)
    return job, run(app, task, job)


def test_it_is_put_back_uncounted_while_a_worker_with_other_code_takes_the_task(app: App):
    task, _ = unreadable(app)
    app.broker.renew([a_worker("other", tasks={"send": 1}, code="other code")])

    job, outcome = attempt(app, task)

    assert (outcome.state, outcome.reason, outcome.failures) == (State.READY, "unreadable", 0)
    assert "number" in outcome.error
    assert app.broker.settle([(job, outcome)]) == [True]
    [row] = [event for event in app.broker.history(job=job.id) if event.kind == "attempt"]
    assert (row.reason, row.state) == ("unreadable", State.READY)


@pytest.mark.parametrize(
    "fields",
    [
        {"code": None},  # of this release
        {"code": "other code", "tasks": {"receive": 1}},
        {"code": "other code", "queues": ("mail",)},
        {"code": "other code", "app": "media"},
    ],
    ids=["same code", "another task", "another queue", "another program"],
)
def test_it_fails_where_nobody_else_may_read_it(app: App, fields: dict[str, Any]):
    task, _ = unreadable(app)
    row = {"tasks": {"send": 1}, **fields, "code": fields["code"] or app.code}
    app.broker.renew([a_worker("other", **row)])

    _, outcome = attempt(app, task)

    assert (outcome.state, outcome.reason) == (State.FAILED, "unreadable")


def test_it_fails_when_the_worker_with_other_code_is_dead(app: App, clock: Clock):
    task, _ = unreadable(app)
    app.broker.renew([a_worker("other", tasks={"send": 1}, code="other code")])
    clock.advance(seconds=60)

    _, outcome = attempt(app, task)

    assert outcome.state is State.FAILED


def test_what_nobody_can_read_ends_after_a_bounded_time(app: App, clock: Clock):
    task, enqueued = unreadable(app)
    delays: list[float] = []
    while app.broker.get(enqueued.id).state is not State.FAILED:
        app.broker.renew([a_worker("other", tasks={"send": 1}, code="other code")])
        job, outcome = attempt(app, task)
        app.broker.settle([(job, outcome)])
        if outcome.state is State.READY:
            delays.append(outcome.run_at - clock.now())
            clock.advance(seconds=delays[-1])

    assert delays == [1, 2, 4, 8, 16, 32, *[60] * 6]
    assert len(delays) == MOST_TIMES
    ended = app.broker.get(enqueued.id)
    assert (ended.reason, ended.failures) == ("unreadable", 1)
