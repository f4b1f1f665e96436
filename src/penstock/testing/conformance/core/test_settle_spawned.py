"""Settling a job that spawned others: they are stored with its success, or not at all.

Whoever needs that job waits for them as well. Runs against every broker.
"""

from __future__ import annotations

import msgspec
import pytest

from penstock.flows.spawn_links import MOST_NAMED, Spawned, spawned_in
from penstock.job import Parcel, State, failed, pack, put_back, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    claim,
    end_all,
    enqueue_and_claim,
    ids_of,
    part,
    settle,
)
from penstock.testing.conformance.factories import some_jobs as some

# What a job spawns is of its bucket.
pytestmark = pytest.mark.scope(of="bucket")
WAITING, READY, CANCELLED = State.WAITING, State.READY, State.CANCELLED


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def nothing_of(broker, jobs):
    assert [broker.get(job.id) for job in jobs] == [None] * len(jobs)


def test_they_are_stored_with_the_success(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    jobs = some(clock, 3, **fields)

    assert settle(broker, parent, msgspec.structs.replace(succeeded(b"1"), spawned=tuple(jobs)))

    assert broker.get(parent.id).result == b"1"
    assert sorted(ids_of(claim(broker, limit=10))) == sorted(ids_of(jobs))


def test_the_history_says_what_was_spawned(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    jobs = some(clock, 30, **fields)

    settle(broker, parent, msgspec.structs.replace(succeeded(), spawned=tuple(jobs)))

    rows = broker.history("0", 10, parent.id)
    found = [said for row in rows if (said := spawned_in(row.data)) is not None]
    assert found == [Spawned(30, tuple(ids_of(jobs)[:MOST_NAMED]))]
    [row] = [row for row in rows if row.kind == "event"]
    assert (row.task, row.attempt) == (parent.task, 1)


def test_a_stale_attempt_leaves_no_word_of_what_it_wanted(broker, clock, fields):
    late = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)
    broker.recover()
    [job] = some(clock, 1, **fields)

    assert not settle(broker, late, msgspec.structs.replace(succeeded(), spawned=(job,)))

    assert not any(spawned_in(row.data) for row in broker.history("0", 10, late.id))


def test_they_may_come_in_parcels(broker, clock):
    parent = enqueue_and_claim(broker, clock)
    jobs = some(clock, 300)
    parcels, _ = pack(jobs)
    assert all(isinstance(parcel, Parcel) for parcel in parcels)

    settle(broker, parent, msgspec.structs.replace(succeeded(), spawned=tuple(parcels)))

    assert sorted(ids_of(claim(broker, limit=1000))) == sorted(ids_of(jobs))


def test_a_job_that_runs_again_on_purpose_spawns_as_well(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    jobs = some(clock, 2, **fields)
    again = put_back("repeat", clock.now() + 60)

    settle(broker, parent, msgspec.structs.replace(again, spawned=tuple(jobs)))

    assert sorted(ids_of(claim(broker, limit=10))) == sorted(ids_of(jobs))


def test_without_success_there_are_none(broker, clock, fields):
    bad = enqueue_and_claim(broker, clock, **fields)
    stopped = enqueue_and_claim(broker, clock, **fields)
    jobs = some(clock, 4, **fields)
    broker.act("cancel", [stopped.id])

    settle(broker, bad, msgspec.structs.replace(failed("boom"), spawned=tuple(jobs[:2])))
    settle(broker, stopped, msgspec.structs.replace(put_back("later"), spawned=tuple(jobs[2:])))

    assert broker.get(stopped.id).state is CANCELLED
    nothing_of(broker, jobs)


def test_a_stale_attempt_spawns_nothing(broker, clock, fields):
    late = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)
    broker.recover()
    [current] = claim(broker, worker="worker-2")
    first, second = some(clock, 2, **fields)

    assert not settle(broker, late, msgspec.structs.replace(succeeded(), spawned=(first,)))
    outcome = msgspec.structs.replace(succeeded(), spawned=(second,))
    assert settle(broker, current, outcome)
    assert not settle(broker, current, outcome)

    nothing_of(broker, [first])
    assert ids_of(claim(broker, limit=10)) == [second.id]


def test_a_job_in_no_flow_may_spawn_one(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    flow = a_flow(clock, work=part(jobs=3, **fields), then=part("work", **fields))

    settle(broker, parent, flow.spawned_by(succeeded()))

    assert flow.states(broker, "then") == [WAITING]
    assert end_all(broker, succeeded()) == sorted(flow.ids("work"))
    assert end_all(broker, succeeded()) == flow.ids("then")
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_whoever_needs_the_parent_waits_for_them(broker, clock, fields):
    flow = a_flow(clock, split=part(**fields), last=part("split", **fields))
    flow.send(broker)
    [split] = claim(broker)
    more = a_flow(clock, flow.flow.id, work=part(jobs=3, **fields), then=part("work", **fields))

    settle(broker, split, more.spawned_by(succeeded()))

    assert flow.states(broker, "last") == [WAITING]
    row = broker.flow(flow.flow.id)
    assert [node.id for node in row.nodes[-2:]] == [more.nodes["then"], flow.nodes["last"]]
    last = flow.row(broker, "last")
    assert set(last.needs) == {flow.nodes["split"], more.nodes["then"]}
    assert last.needs_left == 1
    assert end_all(broker, succeeded()) == sorted(more.ids("work"))
    assert flow.states(broker, "last") == [WAITING]
    assert end_all(broker, succeeded()) == more.ids("then")
    assert end_all(broker, succeeded()) == flow.ids("last")
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_without_a_then_all_of_them_are_waited_for(broker, clock, fields):
    flow = a_flow(clock, split=part(**fields), last=part("split", **fields))
    flow.send(broker)
    [split] = claim(broker)
    more = a_flow(clock, flow.flow.id, a=part(**fields), b=part(jobs=2, **fields))

    settle(broker, split, more.spawned_by(succeeded()))

    assert flow.row(broker, "last").needs_left == 2
    assert end_all(broker, succeeded()) == sorted(more.ids("a", "b"))
    assert end_all(broker, succeeded()) == flow.ids("last")


def test_every_job_of_a_map_may_spawn(broker, clock, fields):
    flow = a_flow(clock, split=part(jobs=2, **fields), last=part("split", **fields))
    flow.send(broker)
    first, second = claim(broker, limit=2)
    left = a_flow(clock, flow.flow.id, a=part(**fields))
    right = a_flow(clock, flow.flow.id, b=part(**fields))

    broker.settle([(first, left.spawned_by(succeeded())), (second, right.spawned_by(succeeded()))])

    assert flow.states(broker, "last") == [WAITING]
    assert end_all(broker, succeeded()) == sorted([*left.ids("a"), *right.ids("b")])
    assert end_all(broker, succeeded()) == flow.ids("last")


def test_what_was_spawned_may_spawn_in_turn(broker, clock, fields):
    flow = a_flow(clock, one=part(**fields), last=part("one", **fields))
    flow.send(broker)
    for _ in range(3):
        [job] = claim(broker)
        settle(
            broker,
            job,
            a_flow(clock, flow.flow.id, more=part(**fields)).spawned_by(succeeded()),
        )
        assert flow.states(broker, "last") == [WAITING]

    end_all(broker, succeeded())

    assert end_all(broker, succeeded()) == flow.ids("last")
    assert len(broker.flow(flow.flow.id).nodes) == 5


def test_a_spawned_job_that_fails_cancels_who_waits(broker, clock, fields):
    flow = a_flow(clock, split=part(**fields), last=part("split", **fields))
    flow.send(broker)
    [split] = claim(broker)
    more = a_flow(clock, flow.flow.id, work=part(**fields), then=part("work", **fields))
    settle(broker, split, more.spawned_by(succeeded()))

    end_all(broker, failed("boom"))

    assert more.states(broker, "then") == [CANCELLED]
    assert flow.states(broker, "last") == [CANCELLED]
    assert broker.act("retry", more.ids("work")) == more.ids("work")
    assert flow.states(broker, "last") == [WAITING]
    for ids in (more.ids("work"), more.ids("then"), flow.ids("last")):
        assert end_all(broker, succeeded()) == ids


def test_others_that_need_it_and_others_that_do_not(broker, clock, fields):
    flow = a_flow(
        clock,
        split=part(**fields),
        other=part(**fields),
        needs=part("split", "other", **fields),
        free=part("other", **fields),
        last=part("needs", "free", **fields),
    )
    flow.send(broker)
    more = a_flow(clock, flow.flow.id, work=part(**fields))
    for job in claim(broker, limit=2):
        spawns = job.id in flow.ids("split")
        settle(broker, job, more.spawned_by(succeeded()) if spawns else succeeded())

    assert flow.row(broker, "needs").needs_left == 1
    assert end_all(broker, succeeded()) == sorted([*flow.ids("free"), *more.ids("work")])
    assert end_all(broker, succeeded()) == flow.ids("needs")
    assert end_all(broker, succeeded()) == flow.ids("last")
