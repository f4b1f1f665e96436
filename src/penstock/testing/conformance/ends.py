"""The ways in which a stored job may end, each by a call or two on its broker."""

from __future__ import annotations

from typing import Any

from penstock.broker.protocol import Broker
from penstock.job import Job, Outcome, State, failed, succeeded
from penstock.testing.conformance.factories import claim, settle


def succeed(broker: Broker, job: Job[Any]) -> None:
    settle(broker, claim(broker)[0], succeeded(b"1"))


def succeed_unkept(broker: Broker, job: Job[Any]) -> None:
    settle(broker, claim(broker)[0], Outcome(State.SUCCEEDED, keep=False))


def fail(broker: Broker, job: Job[Any]) -> None:
    settle(broker, claim(broker)[0], failed("boom"))


def cancel(broker: Broker, job: Job[Any]) -> None:
    broker.act("cancel", [job.id])


def delete(broker: Broker, job: Job[Any]) -> None:
    broker.act("delete", [job.id])


ENDS = (succeed, succeed_unkept, fail, cancel, delete)
