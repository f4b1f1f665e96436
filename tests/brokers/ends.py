"""The ways in which a stored job may end, each by a call or two on its broker."""

from __future__ import annotations

from penstock.job import Outcome, State, failed, succeeded
from tests.factories import claim, settle


def succeed(broker, job):
    settle(broker, claim(broker)[0], succeeded(b"1"))


def succeed_unkept(broker, job):
    settle(broker, claim(broker)[0], Outcome(State.SUCCEEDED, keep=False))


def fail(broker, job):
    settle(broker, claim(broker)[0], failed("boom"))


def cancel(broker, job):
    broker.act("cancel", [job.id])


def delete(broker, job):
    broker.act("delete", [job.id])


ENDS = (succeed, succeed_unkept, fail, cancel, delete)
