"""Put, of the settings of a worker: what is not named stays, and workers are told."""

from __future__ import annotations

import json

import pytest

from penstock.broker.worker_settings import WorkerSettings
from penstock.errors import Refused


def test_what_is_not_named_stays(broker, clock):
    broker.put(WorkerSettings(worker="mail-1", threads=20), "ada", "backlog")
    kept = broker.put(WorkerSettings(worker="mail-1", quiet=True, queues={"mail": 2}), "bob", "")

    assert (kept.threads, kept.quiet, kept.queues) == (20, True, {"mail": 2})
    assert (kept.author, kept.stop_at) == ("bob", 0.0)
    assert abs(kept.set_at - clock.now()) < 60
    assert broker.records(WorkerSettings) == [kept]


def test_a_stop_is_of_its_moment(broker, clock):
    broker.put(WorkerSettings(worker="mail-1", threads=20))
    kept = broker.put(WorkerSettings(worker="mail-1", stop=True))

    assert abs(kept.stop_at - clock.now()) < 60
    assert (kept.threads, kept.stop) == (20, False)
    assert broker.put(WorkerSettings(worker="mail-1", quiet=False)).stop_at == kept.stop_at


def test_the_history_says_who_set_what(broker):
    broker.put(WorkerSettings(worker="mail-1", threads=20), "ada", "backlog")
    broker.put(WorkerSettings(worker="mail-1", stop=True), "ada", "")
    assert broker.clear(WorkerSettings, "mail-1", "bob", "done")
    assert not broker.clear(WorkerSettings, "mail-1")

    rows = [json.loads(row.data) for row in broker.history() if row.kind == "worker"]
    assert [(row["worker"], row["says"], row["author"]) for row in rows] == [
        ("mail-1", "set", "ada"),
        ("mail-1", "stopped", "ada"),
        ("mail-1", "reset", "bob"),
    ]
    assert rows[0]["settings"] == "threads=20"
    assert broker.records(WorkerSettings) == []


def test_workers_are_told_that_something_changed(broker):
    before = broker.traits.rules_version()

    broker.put(WorkerSettings(worker="mail-1", threads=20))

    assert broker.traits.rules_version() != before


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"threads": 1_001},
        {"async_slots": 5_001},
        {"processes": 0},
        {"queues": {"mail": -1}},
    ],
)
def test_what_no_worker_can_follow_is_refused(broker, wrong):
    with pytest.raises(Refused, match="from"):
        broker.put(WorkerSettings(worker="mail-1", **wrong))

    assert broker.records(WorkerSettings) == []
