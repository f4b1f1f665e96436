"""Record: what a person did that no other verb has a row for. Runs against every broker."""

from __future__ import annotations

import json

import pytest

from penstock.broker.protocol import Broker
from penstock.broker.views import RECORDED
from penstock.errors import Refused


@pytest.mark.parametrize("kind", RECORDED)
def test_a_deed_is_a_row_of_history_with_who_why_and_what(broker: Broker, clock, kind):
    broker.audit(kind, "ada", "disk was full", {"jobs": 7, "filter": "state:failed"})

    [row] = broker.history()
    assert (row.kind, row.at, row.job, row.state) == (kind, clock.now(), None, None)
    assert json.loads(row.data or b"") == {
        "author": "ada",
        "reason": "disk was full",
        "jobs": 7,
        "filter": "state:failed",
    }
    assert broker.history(None, kind=kind) == [row]


def test_words_that_no_store_could_keep_are_made_legible(broker: Broker):
    broker.audit("operation", "a\0da", "\ud800")

    [row] = broker.history()
    told = json.loads(row.data or b"")
    assert "\0" not in told["author"]
    assert told["reason"].encode()


def test_a_kind_that_another_verb_writes_is_refused(broker: Broker):
    with pytest.raises(Refused, match="there are enqueue, backfill, operation, login"):
        broker.audit("attempt", "mallory")

    assert broker.history() == []
