"""Damaged rows: that job ends with a reason, the others flow, and every page still opens."""

from __future__ import annotations

import sqlite3

import pytest

from penstock import App, State
from penstock.broker.filter import Filter
from penstock.broker.views import WorkerRow
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import claim_for

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
def testing(app, tmp_path):
    path = tmp_path / "jobs.db"
    with app.testing(url=f"sqlite:///{path}") as t:
        t.raw = sqlite3.connect(path, isolation_level=None)
        yield t
        t.raw.close()


def enqueue(app, task: str, count: int) -> list[str]:
    return [app.tasks[task].enqueue(n).id for n in range(count)]


def raw_id(job: str) -> bytes:
    return bytes.fromhex(job.replace("-", ""))


def everything_can_be_looked_at(broker, ids) -> None:
    broker.count()
    broker.history()
    broker.workers()
    broker.find(Filter())
    broker.find(Filter(task=("row",), args={"n": ("3",)}))
    for state in State:
        broker.find(Filter(state=(state,)))
    for job in ids:
        broker.get(job)
        broker.why(job)
        broker.history(job=job)


def damage(testing, statement: str, **parameters) -> None:
    # A bad sector asks no constraint: what is checked is damaged all the same.
    testing.raw.execute("pragma ignore_check_constraints = on")
    if ":garbage" in statement:
        parameters["garbage"] = GARBAGE
    assert testing.raw.execute(statement, parameters).rowcount


PARCELS = {
    "bodies of another kind": "bodies = :garbage",
    "bodies empty": "bodies = x''",
    "bodies cut short": "bodies = substr(bodies, 1, 7)",
    "lengths empty": "lengths = x''",
    "lengths of an odd size": "lengths = x'010203'",
    "lengths too large": "lengths = x'ffffffffffffffff'",
    "more jobs than bodies": "jobs = jobs + 5",
    "fewer jobs than bodies": "jobs = 1",
    "no jobs": "jobs = 0",
    "fewer than none": "jobs = -1",
    "a lane that nobody knows": "lane = 42",
}


@pytest.mark.parametrize("change", PARCELS.values(), ids=PARCELS)
def test_a_damaged_parcel_ends_and_others_flow(app, testing, change):
    damaged = app.enqueue([app.tasks["parcel"].job(n) for n in range(3)])
    damaged = [handle.id for handle in damaged]
    damage(testing, f"update penstock_parcel set {change}")
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


def test_a_parcel_of_far_too_many_jobs_is_taken_as_far_as_it_can_be(app, testing):
    damaged = enqueue(app, "parcel", 1)
    damage(testing, "update penstock_parcel set jobs = 1000000000")
    everything_can_be_looked_at(testing.broker, damaged)

    first, *_ = testing.drain(limit=3)

    assert (first.job.id, first.state) == (damaged[0], State.SUCCEEDED)


@pytest.mark.parametrize("name", ["bodies of another kind", "lengths empty", "bodies empty"])
def test_the_jobs_of_a_damaged_parcel_fail_one_by_one_with_a_reason(app, testing, name):
    damaged = enqueue(app, "parcel", 3)
    damage(testing, f"update penstock_parcel set {PARCELS[name]}")

    testing.drain()

    for job in map(testing.broker.get, damaged):
        assert (job.state, job.reason) == (State.FAILED, "unreadable")
        assert job.error
    assert sum(count.failed for count in testing.broker.count()) == 3


ROWS = {
    "a body of another kind": "body = :garbage",
    "a body that is empty": "body = x''",
    "a body cut short": "body = substr(body, 1, 9)",
    "tags of another kind": "tags = 'x'",
    "tags that are no text": "tags = cast(x'7bff80' as text)",
    "tags that are no object": "tags = '[1]'",
    "tags with numbers": "tags = '{\"a\": 1}'",
    "search of another kind": "search = 'x'",
    "half a unique key": "unique_key = 'a', unique_until = null",
    "a key that is no text": "key = cast(x'ff' as text)",
    "an error that is no text": "error = cast(x'ff' as text)",
    "failures beyond reason": "failures = 9223372036854775807",
    "a due time in no calendar": "run_at = -1e300",
    "a lane that nobody knows": "lane = 42",
}


@pytest.mark.parametrize("change", ROWS.values(), ids=ROWS)
def test_a_damaged_row_ends_and_others_flow(app, testing, change):
    damaged, *good = enqueue(app, "row", 6)
    good += enqueue(app, "parcel", 5)
    damage(testing, f"update penstock_job set {change} where id = :id", id=raw_id(damaged))
    everything_can_be_looked_at(testing.broker, [damaged])

    testing.drain()

    assert all(testing.broker.get(job).state is State.SUCCEEDED for job in good)
    everything_can_be_looked_at(testing.broker, [damaged, *good])
    job = testing.broker.get(damaged)
    if change.startswith(("body", "tags", "search")):
        assert (job.state, job.reason) == (State.FAILED, "unreadable")
    assert testing.drain() == []


def test_a_row_whose_lane_is_gone_says_so(app, testing):
    [damaged] = enqueue(app, "row", 1)
    damage(testing, "update penstock_job set lane = 42")
    testing.drain()

    assert testing.broker.get(damaged).task == "lane:42"
    assert testing.broker.why(damaged).cause == "no_task"


MISTAKES = {
    "a body as text": "update penstock_job set body = '{}'",
    "a body as a number": "update penstock_job set body = 5",
    "a state that nobody knows": "update penstock_job set state = 'sleeping'",
    "attempts as text": "update penstock_job set attempt = 'x'",
    "a due time as text": "update penstock_job set run_at = '2026-11-15'",
    "an expiry as text": "update penstock_job set expires_at = 'soon'",
    "an id cut short": "update penstock_job set id = x'0102'",
    "bodies of parcels as text": "update penstock_parcel set bodies = 'x'",
    "lengths that do not fit": "update penstock_parcel set lengths = x'00'",
    "a number of jobs that does not fit": "update penstock_parcel set jobs = jobs + 1",
    "a parcel's id cut short": "update penstock_parcel set id = x'0102'",
    "marks that do not fit": "update penstock_lease set marks = x''",
    "ids that do not fit": "update penstock_lease set ids = substr(ids, 1, 10)",
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_an_edit_by_hand_that_makes_no_sense_is_refused_by_the_file(app, testing, mistake):
    enqueue(app, "parcel", 1)
    claim_for(testing.broker, WorkerRow(id="other", tasks=app.known_tasks()))
    ids = enqueue(app, "row", 2) + enqueue(app, "parcel", 2)

    with pytest.raises(sqlite3.IntegrityError):
        testing.raw.execute(mistake)

    testing.drain()
    assert all(testing.broker.get(job).state is State.SUCCEEDED for job in ids)


@pytest.mark.parametrize("verb", ["cancel", "delete", "retry"])
@pytest.mark.parametrize("change", ["body = x'ff'", "tags = 'x'", "lane = 42"])
def test_a_damaged_row_can_be_dealt_with_by_hand(app, testing, verb, change):
    damaged, good = enqueue(app, "row", 2)
    damage(testing, f"update penstock_job set {change} where id = :id", id=raw_id(damaged))

    testing.broker.act(verb, [damaged, good])

    if verb == "delete":
        assert testing.broker.get(damaged) is None


LEASES = {
    "bodies of another kind": "bodies = x'ffff'",
    "lengths that are zero": "lengths = zeroblob(length(lengths))",
    "lengths too large": "lengths = x'ffffffffffffffffffffffff'",
    "marks of no meaning": "marks = x'070809'",
    "a lane that nobody knows": "lane = 42",
}


@pytest.mark.parametrize("change", LEASES.values(), ids=LEASES)
def test_a_damaged_lease_does_not_stop_recovery_of_the_others(app, testing, change):
    enqueue(app, "parcel", 3)
    dead = WorkerRow(id="dead", tasks=app.known_tasks())
    assert len(claim_for(testing.broker, dead, limit=3)) == 3
    damage(testing, f"update penstock_lease set {change}")
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
    "a body of another kind": "body = :garbage, result = :garbage",
    "data of another kind": "data = :garbage",
    "an error that is no text": "error = cast(x'ff' as text)",
}


@pytest.mark.parametrize("change", HISTORY.values(), ids=HISTORY)
def test_a_damaged_history_row_does_not_hide_the_others(app, testing, change):
    ids = enqueue(app, "parcel", 3)
    testing.drain()
    testing.broker.put(Rule(RuleKind.PAUSE, queue="q"))
    damage(testing, f"update penstock_history set {change} where position = 2")

    events = testing.broker.history()

    assert [int(event.position) for event in events] == [1, 2, 3, 4]
    everything_can_be_looked_at(testing.broker, ids)
