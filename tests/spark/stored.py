"""A store with a history, for tests of the source: rows of every kind in every table."""

from __future__ import annotations

from typing import Any

from penstock.broker.protocol import Broker
from penstock.broker.views import Note
from penstock.job import failed, succeeded, try_again
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_job,
    begun,
    claim,
    enqueue_and_claim,
    settle,
    some_jobs,
)

BODY = b'{"args":{"who":"ada","pin":"1234"},"headers":{"trace":"t-1"},"secret":["pin"]}'
# A row of PostgreSQL's history, written by whoever commits later.
LATE = "insert into penstock.history (kind, at, attempt, state) values ('attempt', %s, 1, 'failed')"


def end(broker: Broker, clock: Clock, jobs: Any, result: bytes | None = b"1") -> None:
    """These jobs succeed, each a moment after the one before."""
    for job in jobs:
        clock.advance(seconds=0.25)
        settle(broker, job, begun(succeeded(result), clock.now()))


def fill(broker: Broker, clock: Clock) -> None:
    """Something of everything that a table can show."""
    broker.enqueue(some_jobs(clock, 3, queue="mail"))
    tagged = a_job(clock, "media:resize", key="k", tags={"tenant": "a", "x": 'q"\n,'}, body=BODY)
    broker.enqueue([tagged])
    outcomes = [
        succeeded('{"n":"é,\\n"}'.encode()),
        failed('Traceback\n  "x", y\n'),
        succeeded(),
        try_again("", clock.now()),
    ]
    for job, outcome in zip(claim(broker, limit=4), outcomes, strict=True):
        clock.advance(seconds=1.5)
        settle(broker, job, begun(outcome, clock.now()))
    taken = enqueue_and_claim(broker, clock, queue="films", priority=7)
    broker.note(taken, Note("progress", "half", b"0.5"))
    broker.act("cancel", [taken.id], "ada", "too late")
    broker.gauge()
    broker.enqueue(some_jobs(clock, 4))
    broker.enqueue([a_job(clock, run_at=clock.now() + 60)])
    claim(broker, limit=2)
