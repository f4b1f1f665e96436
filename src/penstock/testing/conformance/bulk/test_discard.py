"""Discard: what is staged of a write that came to nothing is forgotten."""

from __future__ import annotations

import pytest

from penstock.errors import Refused
from penstock.testing.conformance.factories import claim, some_jobs

pytestmark = pytest.mark.needs("bulk")


def test_a_discarded_write_leaves_nothing(broker, clock):
    """I2: an aborted write has stored nothing."""
    broker.stage("write-1", "0/1", some_jobs(clock, 3))
    broker.stage("write-2", "0/1", some_jobs(clock, 2))

    broker.discard("write-1")

    with pytest.raises(Refused, match="3 jobs, 0 are staged"):
        broker.commit_write("write-1", {"0/1": 3})
    assert broker.commit_write("write-2", {"0/1": 2}).jobs == 2
    assert len(claim(broker, 10)) == 2


def test_what_was_published_stays(broker, clock):
    """The driver was told that its commit failed, but it did not."""
    broker.stage("write-1", "0/1", some_jobs(clock, 3))
    broker.commit_write("write-1", {"0/1": 3})

    broker.discard("write-1")

    assert len(claim(broker, 10)) == 3
    assert broker.commit_write("write-1", {"0/1": 3}).jobs == 3


def test_a_write_that_nobody_knows_may_be_discarded(broker):
    broker.discard("write-1")


def test_a_discarded_write_may_be_made_again(broker, clock):
    broker.stage("write-1", "0/1", some_jobs(clock, 3))
    broker.discard("write-1")
    broker.stage("write-1", "0/2", some_jobs(clock, 2))

    assert broker.commit_write("write-1", {"0/2": 2}).jobs == 2
