"""Whole flows: cancelled, retried and deleted in one call. Runs against every broker."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.views import Note
from penstock.job import State, failed, put_back, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    end_all,
    ids_of,
    part,
    settle,
)

WAITING, READY, RUNNING = State.WAITING, State.READY, State.RUNNING
SUCCEEDED, FAILED, CANCELLED = State.SUCCEEDED, State.FAILED, State.CANCELLED


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    return request.param


def three_steps(clock, fields, jobs=5):
    return a_flow(
        clock,
        split=part(**fields),
        work=part("split", jobs=jobs, **fields),
        join=part("work", **fields),
    )


def wide(clock, fields, jobs=5):
    return a_flow(clock, work=part(jobs=jobs, **fields), join=part("work", **fields))


def total(broker):
    return sum(count.total for count in broker.count())


def flow_events(broker, flow):
    events = [event for event in broker.history(job=flow.flow.id) if event.kind == "flow"]
    return [msgspec.json.decode(event.data) for event in events]


def test_cancel_ends_what_waits_and_is_ready_and_tells_what_runs(broker, clock, fields):
    flow = wide(clock, fields)
    other = wide(clock, fields)
    flow.send(broker)
    other.send(broker)
    running = [job for job in claim(broker, limit=7) if job.id in flow.ids("work")]
    assert len(running) > 0

    done = broker.act("cancel", (), "ada", "enough", flow=flow.flow.id)

    assert sorted(done) == sorted(flow.ids("work", "join"))
    states = flow.states(broker, "work")
    assert states.count(RUNNING) == len(running)
    assert states.count(CANCELLED) == 5 - len(running)
    assert flow.states(broker, "join") == [CANCELLED]
    told = broker.renew([a_worker()]).cancelled
    assert told == frozenset(ids_of(running))
    assert {state for name in ("work", "join") for state in other.states(broker, name)} <= {
        READY,
        RUNNING,
        WAITING,
    }
    for job in running:
        assert settle(broker, job, put_back("cancelled"))
    assert broker.flow(flow.flow.id).ended_at == clock.now()
    assert flow_events(broker, flow)[-2]["says"] == "cancel"
    assert flow_events(broker, flow)[-2]["author"] == "ada"
    assert flow_events(broker, flow)[-1]["says"] == "ended"
    assert flow_events(broker, flow)[-1]["bad"] == 6


def test_cancel_at_every_stage_leaves_nothing_to_run(broker, clock, fields):
    for stage in range(4):
        flow = three_steps(clock, fields)
        flow.send(broker)
        for _ in range(stage):
            end_all(broker, succeeded())
        clock.advance(seconds=1)

        done = broker.act("cancel", (), flow=flow.flow.id)

        left = [["split", "work", "join"], ["work", "join"], ["join"], []][stage]
        assert sorted(done) == sorted(flow.ids(*left))
        assert total(broker) == 0
        assert claim(broker, limit=10) == []
        assert broker.flow(flow.flow.id).ended_at is not None
        assert broker.act("cancel", (), flow=flow.flow.id) == []


def test_cancel_of_a_flow_that_is_not_known_is_nothing(broker, clock):
    job = a_job(clock)
    broker.enqueue([job])

    assert broker.act("cancel", (), flow=job.id) == []
    assert broker.act("retry", (), flow=job.id) == []
    assert broker.act("delete", (), flow=job.id) == []
    assert broker.get(job.id).state is READY


def test_cancel_of_a_large_flow(broker, clock, fields):
    jobs = 1000 if fields else 5000  # the size is the same to a store, whatever its jobs have
    flow = wide(clock, fields, jobs=jobs)
    flow.send(broker)
    taken = claim(broker, limit=100)
    broker.settle([(job, succeeded()) for job in taken[:50]])

    done = broker.act("cancel", (), flow=flow.flow.id)

    assert len(done) == jobs + 1 - 50
    [count] = broker.count()
    assert count.running == 50
    assert total(broker) == 50
    broker.settle([(job, succeeded()) for job in taken[50:]])
    assert total(broker) == 0
    assert broker.flow(flow.flow.id).ended_at is not None


def test_retry_revives_what_failed_and_what_that_cancelled(broker, clock, fields):
    """One call, and the flow goes on as its needs say."""
    flow = three_steps(clock, fields)
    flow.send(broker)
    end_all(broker, succeeded())
    good, *bad = claim(broker, limit=5)
    assert settle(broker, good, succeeded())
    broker.settle([(job, failed("error")) for job in bad])
    assert flow.states(broker, "join") == [CANCELLED]

    done = broker.act("retry", (), "ada", flow=flow.flow.id)

    assert sorted(done) == sorted([*ids_of(bad), *flow.ids("join")])
    assert flow.states(broker, "join") == [WAITING]
    assert end_all(broker, succeeded()) == sorted(ids_of(bad))
    assert end_all(broker, succeeded()) == flow.ids("join")
    assert broker.flow(flow.flow.id).ended_at is not None
    says = [event["says"] for event in flow_events(broker, flow)]
    assert says == ["queued", "ended", "retry", "ended"]


def test_a_flow_that_was_cancelled_as_a_whole_runs_as_a_whole_when_it_is_retried(
    broker, clock, fields
):
    flow = three_steps(clock, fields)
    flow.send(broker)
    broker.act("cancel", (), flow=flow.flow.id)

    assert sorted(broker.act("retry", (), flow=flow.flow.id)) == sorted(
        flow.ids("split", "work", "join")
    )

    ended = [end_all(broker, succeeded()) for _ in range(4)]
    assert ended == [*(sorted(flow.ids(name)) for name in ("split", "work", "join")), []]
    assert [node.bad for node in broker.flow(flow.flow.id).nodes] == [0, 0, 0]


def test_retry_of_a_flow_without_failures_is_nothing(broker, clock, fields):
    flow = three_steps(clock, fields)
    flow.send(broker)
    end_all(broker, succeeded())

    assert broker.act("retry", (), flow=flow.flow.id) == []
    assert [event["says"] for event in flow_events(broker, flow)] == ["queued"]


def test_delete_in_every_stage_and_nothing_comes_back(broker, clock, fields):
    """G56: jobs, children and lookups go; workers never write a deleted one back."""
    for stage in range(4):
        flow = three_steps(clock, fields)
        named = msgspec.structs.replace(flow.flow, name="access", find={"user": 62})
        broker.enqueue(flow.jobs, flow=named)
        for _ in range(stage):
            end_all(broker, succeeded(b"1"))
        running = claim(broker, limit=2)
        for job in running:
            broker.note(job, Note("snapshot", "", b"1"))
        before = total(broker)

        done = broker.act("delete", (), "ada", flow=flow.flow.id)

        assert sorted(done) == sorted(flow.ids("split", "work", "join"))
        assert total(broker) == 0, (stage, before)
        assert broker.flow(flow.flow.id) is None
        assert list(broker.flows("access", {"user": "62"}).flows) == []
        for job in running:
            assert not broker.note(job, Note("state", "", b'{"a":1}'))
            assert not broker.note(job, Note("snapshot", "", b"2"))
            assert not settle(broker, job, succeeded(b"2"))
        for job_id in flow.ids("split", "work", "join"):
            assert broker.get(job_id) is None
            assert broker.notes(job_id) == []
            assert all(event.body is None for event in broker.history(job=job_id))
        assert claim(broker, limit=10) == []
        assert broker.enqueue(flow.jobs, flow=named).known == frozenset(
            flow.ids("split", "work", "join")
        )
        assert claim(broker, limit=10) == []
        assert broker.flow(flow.flow.id) is None
        assert [event["says"] for event in flow_events(broker, flow)][-1] == "delete"
        clock.advance(seconds=1)


def test_delete_leaves_other_flows_of_the_same_claim_alone(broker, clock):
    flow, other = wide(clock, {}), wide(clock, {})
    flow.send(broker)
    other.send(broker)
    jobs = claim(broker, limit=10)
    assert len(jobs) == 10

    broker.act("delete", (), flow=flow.flow.id)

    accepted = broker.settle([(job, succeeded()) for job in jobs])
    assert accepted == [job.id in other.ids("work") for job in jobs]
    assert end_all(broker, succeeded()) == other.ids("join")
    assert total(broker) == 0


def test_what_a_deleted_member_spawned_is_not_stored(broker, clock):
    flow = wide(clock, {}, jobs=1)
    flow.send(broker)
    [job] = claim(broker)
    broker.act("delete", (), flow=flow.flow.id)
    more = a_flow(clock, flow.flow.id, more=part())

    assert not settle(broker, job, more.spawned_by(succeeded()))

    assert broker.get(more.ids("more")[0]) is None
    assert total(broker) == 0
