"""Damaged rows in PostgreSQL: that job ends with a reason, the others flow, every page opens.

The types of its columns keep out most of what a file lets in; what is left is bytes that mean
nothing, and numbers that do not fit each other.
"""

from __future__ import annotations

import psycopg
import pytest

from penstock import App, State
from penstock.broker.views import WorkerRow
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import claim_for
from tests.trust.test_corrupt_rows import enqueue, everything_can_be_looked_at

GARBAGE = b"\x00\xff\xfe{[\x80"


@pytest.fixture
def app():
    app = App("memory:")

    @app.task(name="parcel")
    def parcel(n: int) -> int:
        return n

    @app.task(name="row", search=("n",))
    def row(n: int) -> int:
        return n

    return app


@pytest.fixture
def testing(app, postgres_store_url):
    with app.testing(url=postgres_store_url) as t:
        t.raw = psycopg.connect(postgres_store_url, autocommit=True)
        yield t
        t.raw.close()


def damage(testing, table: str, change: str, where: str = "true") -> None:
    values = {"garbage": GARBAGE} if "%(garbage)s" in change else None
    assert testing.raw.execute(f"update penstock.{table} set {change} where {where}", values)


PARCELS = {
    "bodies of another kind": "bodies = %(garbage)s",
    "bodies empty": "bodies = ''",
    "bodies cut short": "bodies = substr(bodies, 1, 7)",
    "lengths too large": "lengths = decode(repeat('ff', 4 * jobs), 'hex')",
    "lengths that are zero": "lengths = decode(repeat('00', 4 * jobs), 'hex')",
    "fewer jobs than bodies": "jobs = 1, lengths = substr(lengths, 1, 4)",
    "more jobs than bodies": "jobs = 2 * jobs, lengths = lengths || lengths",
    "a lane that nobody knows": "lane = 42",
}


@pytest.mark.parametrize("change", PARCELS.values(), ids=PARCELS)
def test_a_damaged_parcel_ends_and_others_flow(app, testing, change):
    damaged = app.enqueue([app.tasks["parcel"].job(n) for n in range(3)])
    damaged = [handle.id for handle in damaged]
    damage(testing, "parcel", change)
    everything_can_be_looked_at(testing.broker, damaged)
    testing.clock.advance(seconds=1)
    good = enqueue(app, "parcel", 5) + enqueue(app, "row", 5)

    ran = testing.drain()

    assert all(testing.broker.get(job).state is State.SUCCEEDED for job in good)
    for each in ran:
        if each.state is not State.SUCCEEDED:
            assert each.state is State.FAILED
            assert testing.broker.get(each.job.id).reason == "unreadable"
    everything_can_be_looked_at(testing.broker, [*damaged, *good])
    assert testing.drain() == []


ROWS = {
    "a body of another kind": "body = %(garbage)s",
    "a body that is empty": "body = ''",
    "a body cut short": "body = substr(body, 1, 9)",
    "tags of another kind": "tags = 'x'",
    "tags that are no object": "tags = '[1]'",
    "tags with numbers": "tags = '{\"a\": 1}'",
    "search of another kind": "search = 'x'",
    "half a unique key": "unique_key = 'a', unique_until = null",
    "failures beyond reason": "failures = 2147483647",
    "a due time in no calendar": "run_at = -1e300",
    "a lane that nobody knows": "lane = 42",
}


@pytest.mark.parametrize("change", ROWS.values(), ids=ROWS)
def test_a_damaged_row_ends_and_others_flow(app, testing, change):
    damaged, *good = enqueue(app, "row", 6)
    good += enqueue(app, "parcel", 5)
    damage(testing, "job", change, f"id = '{damaged}'")
    everything_can_be_looked_at(testing.broker, [damaged])

    testing.drain()

    assert all(testing.broker.get(job).state is State.SUCCEEDED for job in good)
    everything_can_be_looked_at(testing.broker, [damaged, *good])
    job = testing.broker.get(damaged)
    if change.startswith(("body", "tags", "search")):
        assert (job.state, job.reason) == (State.FAILED, "unreadable")
    assert testing.drain() == []


MISTAKES = {
    "a state that nobody knows": "update penstock.job set state = 'sleeping'",
    "no lengths": "update penstock.parcel set lengths = ''",
    "no jobs": "update penstock.parcel set jobs = 0, lengths = ''",
    "fewer than none": "update penstock.parcel set jobs = -1",
    "lengths that do not fit": "update penstock.parcel set lengths = '\\x00'",
    "a number of jobs that does not fit": "update penstock.parcel set jobs = jobs + 1",
    "attempts as text": "update penstock.job set attempt = 'x'",
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_an_edit_by_hand_that_makes_no_sense_is_refused_by_the_server(app, testing, mistake):
    ids = enqueue(app, "row", 2) + enqueue(app, "parcel", 2)

    with pytest.raises(psycopg.Error):
        testing.raw.execute(mistake)

    testing.drain()
    assert all(testing.broker.get(job).state is State.SUCCEEDED for job in ids)


@pytest.mark.parametrize("verb", ["cancel", "delete", "retry"])
@pytest.mark.parametrize("change", ["body = '\\xff'", "tags = 'x'", "lane = 42"])
def test_a_damaged_row_can_be_dealt_with_by_hand(app, testing, verb, change):
    damaged, good = enqueue(app, "row", 2)
    damage(testing, "job", change, f"id = '{damaged}'")

    testing.broker.act(verb, [damaged, good])

    if verb == "delete":
        assert testing.broker.get(damaged) is None


LEASES = {
    "bodies of another kind": "bodies = '\\xffff'",
    "lengths that are zero": "lengths = decode(repeat('00', length(lengths)), 'hex')",
    "lengths too large": "lengths = '\\xffffffffffffffffffffffff'",
    "marks of no meaning": "marks = '\\x070809'",
    "a lane that nobody knows": "lane = 42",
}


@pytest.mark.parametrize("change", LEASES.values(), ids=LEASES)
def test_a_damaged_lease_does_not_stop_recovery_of_the_others(app, testing, change):
    enqueue(app, "parcel", 3)
    dead = WorkerRow(id="dead", tasks=app.known_tasks())
    assert len(claim_for(testing.broker, dead, limit=3)) == 3
    damage(testing, "lease", change)
    testing.clock.advance(seconds=1)
    good = enqueue(app, "parcel", 3)
    assert len(claim_for(testing.broker, dead, limit=3)) == 3

    testing.clock.advance(seconds=60)
    testing.broker.recover()
    testing.drain()

    assert all(testing.broker.get(job).state is State.SUCCEEDED for job in good)
    everything_can_be_looked_at(testing.broker, good)


HISTORY = {
    "tags of another kind": "tags = 'x'",
    "a state that nobody knows": "state = 'sleeping'",
    "a lane that nobody knows": "lane = 42",
    "a body of another kind": "body = %(garbage)s, result = %(garbage)s",
    "data of another kind": "data = %(garbage)s",
}


@pytest.mark.parametrize("change", HISTORY.values(), ids=HISTORY)
def test_a_damaged_history_row_does_not_hide_the_others(app, testing, change):
    ids = enqueue(app, "parcel", 3)
    testing.drain()
    testing.broker.put(Rule(RuleKind.PAUSE, queue="q"))
    damage(testing, "history", change, f"job = '{ids[1]}'")

    events = testing.broker.history()

    assert len(events) == 4
    everything_can_be_looked_at(testing.broker, ids)
