"""Get many: the jobs of many ids at once, wherever each is."""

from __future__ import annotations

from penstock.enqueue.ids import derived_id
from penstock.job import failed, succeeded
from penstock.testing.conformance.factories import a_job, claim, settle, some_jobs


def test_each_is_as_get_returns_it(broker, clock):
    ended = [a_job(clock, id=derived_id("import", str(number))) for number in range(3)]
    broker.enqueue(ended)
    for job, outcome in zip(claim(broker, 3), (succeeded(b"7"), failed("no"), None), strict=True):
        if outcome is not None:
            settle(broker, job, outcome)
    packed, keyed = some_jobs(clock, 3), a_job(clock, key="ada")
    broker.enqueue([*packed, keyed])
    gone = [derived_id("import", "gone"), a_job(clock).id]
    ids = [job.id for job in (*ended, *packed, keyed)]

    found = broker.get_many([*ids, *gone, ids[0]])

    assert found == {id: broker.get(id) for id in ids}


def test_none_of_none(broker):
    assert broker.get_many([]) == {}
