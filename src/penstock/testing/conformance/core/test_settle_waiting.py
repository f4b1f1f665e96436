"""A job that queues others and waits for them: ready again when all of them have ended.

They are stored in the transaction that has it wait, or not at all. Runs against every broker.
"""

from __future__ import annotations

import msgspec
import pytest

from penstock.flows.flow import Node, member_of
from penstock.flows.spawn_links import spawned_in
from penstock.job import Outcome, State, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    begun,
    claim,
    end_all,
    enqueue_and_claim,
    ids_of,
    part,
    settle,
)

# What a job spawns is of its bucket.
pytestmark = pytest.mark.scope(of="bucket")
WAITING, READY, RUNNING = State.WAITING, State.READY, State.RUNNING
CANCELLED, SUCCEEDED = State.CANCELLED, State.SUCCEEDED


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def children(clock, job, **parts):
    """Parts of the flow of the job that waits for them."""
    member = member_of(job.body)
    return a_flow(clock, job.id if member is None else member.id, **parts)


def waits_for(job, sent, *names):
    """The outcome of a job that queued these parts, and waits for those that are named."""
    needs = tuple(sent.nodes[name] for name in names)
    own = Node(id=job.id, task=job.task, members=((job.id, 1),), needs=needs, on_failure="continue")
    flow = msgspec.structs.replace(sent.flow, nodes=(*sent.flow.nodes, own))
    return Outcome(WAITING, "jobs", spawned=tuple(sent.jobs), flow=flow)


def test_it_is_ready_again_when_all_have_ended(broker, clock, fields):
    """A33: nobody holds it meanwhile, and then it is claimed like any other."""
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(jobs=3, **fields), other=part(**fields))

    assert settle(broker, parent, waits_for(parent, sent, "work", "other"))

    waiting = broker.get(parent.id)
    assert (waiting.state, waiting.reason, waiting.worker) == (WAITING, "jobs", None)
    assert (waiting.attempt, waiting.failures, waiting.lapses) == (1, 0, 0)
    jobs = claim(broker, limit=10)
    assert sorted(ids_of(jobs)) == sorted(sent.ids("work", "other"))
    for job in jobs[:-1]:
        assert settle(broker, job, succeeded(b"1"))
    assert (claim(broker), broker.get(parent.id).state) == ([], WAITING)
    assert settle(broker, jobs[-1], succeeded(b"1"))
    [again] = claim(broker, limit=10)
    assert (again.id, again.attempt) == (parent.id, 2)
    assert settle(broker, again, succeeded(b'"done"'))
    assert broker.get(parent.id).result == b'"done"'
    assert broker.flow(parent.id).ended_at == clock.now()


def test_it_was_started_in_time_however_long_it_waits(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields, expires_at=clock.now() + 10)
    sent = children(clock, parent, work=part(**fields))
    assert settle(broker, parent, waits_for(parent, sent, "work"))
    [job] = claim(broker)
    clock.advance(seconds=12)
    assert settle(broker, job, succeeded(b"1"))

    [again] = claim(broker)

    assert (again.id, again.attempt) == (parent.id, 2)


def test_it_is_ready_again_however_they_ended(broker, clock, fields):
    """A33: failed, cancelled, deleted: it is told of the outcomes, and decides."""
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(jobs=3, **fields))
    settle(broker, parent, waits_for(parent, sent, "work"))
    bad, stopped, gone = claim(broker, limit=10)

    settle(broker, bad, failed("boom"))
    broker.act("cancel", [stopped.id])
    settle(broker, stopped, Outcome(CANCELLED, "cancelled"))
    settle(broker, gone, failed("boom"))
    broker.act("delete", [gone.id])

    assert ids_of(claim(broker, limit=10)) == [parent.id]


def test_it_may_wait_again_and_for_a_chain(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    for attempt in range(2, 5):
        sent = children(clock, parent, work=part(**fields), then=part("work", **fields))
        assert settle(broker, parent, waits_for(parent, sent, "then"))
        assert end_all(broker, succeeded()) == sent.ids("work")
        assert end_all(broker, succeeded()) == sent.ids("then")
        [parent] = claim(broker, limit=10)
        assert parent.attempt == attempt

    settle(broker, parent, succeeded())

    flow = broker.flow(parent.id)
    assert (flow.ended_at, len(flow.nodes)) == (clock.now(), 7)


def test_whoever_needs_it_waits_until_it_has_ended(broker, clock, fields):
    """And is not cancelled because of a job that it waited for: that is its own affair."""
    flow = a_flow(clock, split=part(**fields), last=part("split", **fields))
    flow.send(broker)
    [split] = claim(broker)
    sent = children(clock, split, work=part(**fields))

    settle(broker, split, waits_for(split, sent, "work"))

    assert flow.states(broker, "last") == [WAITING]
    assert end_all(broker, failed("boom")) == sent.ids("work")
    assert flow.states(broker, "split") == [READY]
    assert end_all(broker, succeeded()) == flow.ids("split")
    assert end_all(broker, succeeded()) == flow.ids("last")
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_a_stale_attempt_waits_for_nothing(broker, clock, fields):
    late = enqueue_and_claim(broker, clock, **fields)
    clock.advance(seconds=16)
    broker.recover()
    [current] = claim(broker, worker="worker-2")
    first = children(clock, late, work=part(**fields))
    second = children(clock, current, work=part(**fields))

    assert not settle(broker, late, waits_for(late, first, "work"))
    assert settle(broker, current, waits_for(current, second, "work"))
    assert not settle(broker, current, waits_for(current, second, "work"))

    assert broker.get(first.ids("work")[0]) is None
    assert ids_of(claim(broker, limit=10)) == second.ids("work")


def test_one_that_was_cancelled_meanwhile_queues_nothing(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(**fields))
    broker.act("cancel", [parent.id])

    assert settle(broker, parent, waits_for(parent, sent, "work"))

    assert broker.get(parent.id).state is CANCELLED
    assert broker.get(sent.ids("work")[0]) is None


def test_one_that_waits_can_be_cancelled_and_retried(broker, clock, fields):
    """Retried, it waits for what has not ended; what it queued goes on."""
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(**fields))
    settle(broker, parent, waits_for(parent, sent, "work"))

    assert broker.act("cancel", [parent.id]) == [parent.id]
    assert broker.get(parent.id).state is CANCELLED
    assert broker.act("retry", [parent.id]) == [parent.id]
    assert broker.get(parent.id).state is WAITING
    assert end_all(broker, succeeded()) == sent.ids("work")

    assert end_all(broker, succeeded()) == [parent.id]


def test_one_that_was_cancelled_is_ready_if_all_ended_meanwhile(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(**fields))
    settle(broker, parent, waits_for(parent, sent, "work"))
    broker.act("cancel", [parent.id])
    assert end_all(broker, succeeded()) == sent.ids("work")

    assert broker.act("retry", [parent.id]) == [parent.id]

    assert end_all(broker, succeeded()) == [parent.id]


def test_a_retry_of_what_it_waited_for_takes_nothing_back(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(**fields))
    settle(broker, parent, waits_for(parent, sent, "work"))
    assert end_all(broker, failed("boom")) == sent.ids("work")
    [again] = claim(broker)

    assert broker.act("retry", sent.ids("work")) == sent.ids("work")

    assert broker.get(again.id).state is RUNNING
    assert settle(broker, again, succeeded())
    assert end_all(broker, succeeded()) == sent.ids("work")
    assert broker.flow(parent.id).ended_at == clock.now()


def test_the_history_says_what_it_queued_and_that_it_was_put_back(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(jobs=3, **fields))

    settle(broker, parent, begun(waits_for(parent, sent, "work"), clock.now()))

    rows = broker.history("0", 20, parent.id)
    [attempt] = [row for row in rows if row.kind == "attempt"]
    assert (attempt.state, attempt.reason, attempt.attempt) == (READY, "jobs", 1)
    [said] = [said for row in rows if (said := spawned_in(row.data)) is not None]
    assert (said.jobs, said.flow) == (3, parent.id)


def test_why_names_what_it_waits_for(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(**fields))
    settle(broker, parent, waits_for(parent, sent, "work"))

    why = broker.why(parent.id)

    assert why.cause == "needs"
    assert f"flow:{parent.id}" in why.sentence


def test_it_is_counted_as_waiting_and_in_no_limit(broker, clock, fields):
    parent = enqueue_and_claim(broker, clock, **fields)
    sent = children(clock, parent, work=part(**fields))
    settle(broker, parent, waits_for(parent, sent, "work"))

    [row] = broker.count()

    assert (row.waiting, row.ready, row.running) == (1, 1, 0)


def test_many_wait_in_one_call(broker, clock, fields):
    parents = [enqueue_and_claim(broker, clock, **fields) for _ in range(3)]
    sent = [children(clock, parent, work=part(**fields)) for parent in parents]

    pairs = [
        (parent, waits_for(parent, each, "work"))
        for parent, each in zip(parents, sent, strict=True)
    ]
    assert list(broker.settle(pairs)) == [True] * 3

    assert sorted(end_all(broker, succeeded())) == sorted(
        [job for each in sent for job in each.ids("work")]
    )
    assert sorted(end_all(broker, succeeded())) == sorted(ids_of(parents))
