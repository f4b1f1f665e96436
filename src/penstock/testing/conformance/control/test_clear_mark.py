"""Clear a mark: a lake that was given up holds nothing any more."""

from __future__ import annotations

import json

import pytest

from penstock.broker.lake_mark import Mark
from penstock.broker.position import BEGINNING
from penstock.job import succeeded
from penstock.testing.conformance.factories import begun, enqueue_and_claim, settle

pytestmark = pytest.mark.needs("bulk", "one place")

DAY = 86400


def test_a_lake_that_is_forgotten_holds_nothing(broker, clock):
    settle(broker, enqueue_and_claim(broker, clock), begun(succeeded(b"1"), clock.now()))
    broker.put(Mark(lake="a"))
    clock.advance(days=2)
    left = broker.put(Mark(lake="b", position=broker.history()[-1].position))
    broker.prune(clock.now() - DAY)
    assert broker.history()[0].kind == "attempt"

    assert broker.clear(Mark, "a", "ada") is True
    broker.prune(clock.now() - DAY)

    assert broker.records(Mark) == [left]
    began, gone = (json.loads(row.data or b"") for row in broker.history())
    assert (began["says"], began["lake"]) == ("begun", "b")
    assert (gone["says"], gone["lake"], gone["author"]) == ("forgotten", "a", "ada")


def test_one_that_is_not_there_is_no_error(broker):
    assert broker.clear(Mark, "nothing") is False
    assert broker.history() == []


def test_set_again_it_begins_anew(broker, clock):
    settle(broker, enqueue_and_claim(broker, clock), begun(succeeded(b"1"), clock.now()))
    last = broker.history()[-1].position
    broker.put(Mark(lake="a", position=last))
    broker.clear(Mark, "a")

    assert broker.put(Mark(lake="a")).position == BEGINNING
