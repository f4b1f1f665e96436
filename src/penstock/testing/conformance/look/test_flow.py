"""Flows: jobs wait for those they need, whatever becomes of these. Runs against every broker."""

from __future__ import annotations

import pytest

from penstock.broker.filter import Filter
from penstock.errors import Refused
from penstock.flows.flow import Flow, member_of
from penstock.job import State, Unique, failed, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    an_id,
    claim,
    end_all,
    ids_of,
    part,
    settle,
)

WAITING, READY = State.WAITING, State.READY


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_a_job_waits_until_what_it_needs_has_succeeded(broker, clock, fields):
    flow = a_flow(clock, fetch=part(**fields), report=part("fetch", **fields))
    flow.send(broker)
    [fetch] = claim(broker, limit=10)
    assert fetch.id in flow.ids("fetch")
    assert claim(broker) == []
    assert flow.states(broker, "report") == [WAITING]

    settle(broker, fetch, succeeded(b"1"))

    assert flow.states(broker, "report") == [READY]
    assert end_all(broker, succeeded()) == flow.ids("report")
    assert claim(broker) == []


def test_it_waits_for_all_of_its_needs(broker, clock, fields):
    flow = a_flow(
        clock, left=part(**fields), right=part(**fields), last=part("left", "right", **fields)
    )
    flow.send(broker)
    first, second = claim(broker, limit=10)

    settle(broker, first, succeeded())
    assert claim(broker) == []
    assert flow.row(broker, "last").needs_left == 1
    settle(broker, second, succeeded())

    assert ids_of(claim(broker, limit=10)) == flow.ids("last")


def test_needs_that_end_in_one_call_free_it_once(broker, clock, fields):
    flow = a_flow(
        clock, left=part(**fields), right=part(**fields), last=part("left", "right", **fields)
    )
    flow.send(broker)

    end_all(broker, succeeded())

    assert ids_of(claim(broker, limit=10)) == flow.ids("last")
    assert claim(broker) == []


def test_a_map_is_freed_together_and_needed_together(broker, clock, fields):
    flow = a_flow(
        clock,
        split=part(**fields),
        work=part("split", jobs=300, **fields),
        join=part("work", **fields),
    )
    flow.send(broker)
    [split] = claim(broker, limit=1000)
    assert set(flow.states(broker, "work")) == {WAITING}

    settle(broker, split, succeeded())
    taken = claim(broker, limit=299)
    assert len(taken) == 299
    broker.settle([(job, succeeded()) for job in taken])
    assert flow.states(broker, "join") == [WAITING]
    assert flow.row(broker, "work").jobs_left == 1

    assert len(end_all(broker, succeeded())) == 1
    assert ids_of(claim(broker, limit=10)) == flow.ids("join")


def test_a_map_without_needs_is_ready_at_once(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=200, **fields), join=part("work", **fields))
    flow.send(broker)

    assert end_all(broker, succeeded(), limit=1000) == sorted(flow.ids("work"))

    assert ids_of(claim(broker)) == flow.ids("join")


def test_members_are_handed_out_with_their_place(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=3, **fields), join=part("work", **fields))
    flow.send(broker)

    jobs = claim(broker, limit=10)

    places = {member_of(job.body) for job in jobs}
    assert {(place.id, place.node) for place in places} == {(flow.flow.id, flow.nodes["work"])}


def test_steps_follow_one_another(broker, clock, fields):
    flow = a_flow(
        clock,
        one=part(**fields),
        two=part("one", jobs=5, **fields),
        three=part("two", jobs=5, **fields),
        four=part("three", "one", **fields),
    )
    flow.send(broker)

    ended = [end_all(broker, succeeded()) for _ in range(5)]

    assert ended == [
        *(sorted(flow.ids(name)) for name in ("one", "two", "three", "four")),
        [],
    ]
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_two_flows_do_not_meet(broker, clock):
    first = a_flow(clock, a=part(), b=part("a"))
    second = a_flow(clock, a=part(), b=part("a"))
    first.send(broker)
    second.send(broker)

    for job in claim(broker, limit=2):
        if job.id in first.ids("a"):
            settle(broker, job, succeeded())

    assert ids_of(claim(broker, limit=10)) == first.ids("b")


def test_the_same_flow_sent_again_is_stored_once(broker, clock, fields):
    flow = a_flow(clock, work=part(jobs=3, **fields), last=part("work", **fields))
    assert flow.send(broker).known == frozenset()

    assert flow.send(broker).known == frozenset(flow.ids("work", "last"))

    assert end_all(broker, succeeded()) == sorted(flow.ids("work"))
    assert flow.send(broker).known == frozenset(flow.ids("work", "last"))
    assert end_all(broker, succeeded()) == flow.ids("last")
    assert flow.send(broker).known == frozenset(flow.ids("work", "last"))
    assert claim(broker) == []
    assert flow.row(broker, "work").jobs_left == 0


def nothing_of(broker, flow):
    assert [broker.get(job.id) for job in flow.jobs] == [None] * len(flow.jobs)
    assert broker.flow(flow.flow.id) is None
    assert broker.count() == []


def test_with_one_bad_job_nothing_is_stored(broker, clock):
    flow = a_flow(clock, need=part(), last=part("need", priority=101))

    with pytest.raises(Refused, match="priority"):
        flow.send(broker)

    nothing_of(broker, flow)


def test_a_need_that_is_not_in_it_is_refused(broker, clock):
    flow = a_flow(clock, last=part(an_id(clock)))

    with pytest.raises(Refused, match="not in it"):
        flow.send(broker)

    nothing_of(broker, flow)


def test_needs_in_a_circle_are_refused(broker, clock):
    flow = a_flow(clock, one=part("two"), two=part("one"), three=part("two"))

    with pytest.raises(Refused, match="needs itself"):
        flow.send(broker)

    nothing_of(broker, flow)


def test_a_job_that_could_be_left_out_is_refused(broker, clock):
    """One that stands in its place would never end what waits for it."""
    flow = a_flow(clock, need=part(unique=Unique("once")), last=part("need"))

    with pytest.raises(Refused, match="unique"):
        flow.send(broker)

    nothing_of(broker, flow)


def test_jobs_that_are_missing_are_refused(broker, clock):
    flow = a_flow(clock, need=part(), last=part("need"))

    with pytest.raises(Refused, match="2 jobs are in its nodes, but 1"):
        broker.enqueue(flow.jobs[:1], flow=flow.flow)

    nothing_of(broker, flow)


def test_a_job_that_was_enqueued_alone_is_refused(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    broker.enqueue(flow.named["need"])

    with pytest.raises(Refused, match="enqueued before"):
        flow.send(broker)

    assert broker.flow(flow.flow.id) is None
    assert broker.get(flow.ids("last")[0]) is None


def test_waiting_jobs_are_counted_found_and_shown(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), work=part("need", jobs=4, **fields))
    flow.send(broker)

    [count] = broker.count()
    assert (count.ready, count.waiting, count.total) == (1, 4, 5)
    assert sorted(ids_of(broker.find(Filter()).jobs)) == sorted(ids_of(flow.jobs))
    found = broker.find(Filter(state=(WAITING,))).jobs
    assert sorted(ids_of(found)) == sorted(flow.ids("work"))
    job = broker.get(flow.ids("work")[2])
    assert (job.state, job.attempt, job.body) == (WAITING, 0, flow.named["work"][2].body)

    end_all(broker, succeeded())
    [count] = broker.count()
    assert (count.ready, count.waiting) == (4, 0)


def test_a_freed_job_waits_for_its_time_as_well(broker, clock):
    flow = a_flow(clock, need=part(), last=part("need", run_at=clock.now() + 60))
    flow.send(broker)

    end_all(broker, succeeded())

    assert claim(broker) == []
    clock.advance(seconds=61)
    assert ids_of(claim(broker)) == flow.ids("last")


def test_a_flow_shows_its_nodes_and_how_far_they_are(broker, clock, fields):
    flow = a_flow(
        clock,
        last=part("work", "check", on_failure="continue", task="mail:sweep", **fields),
        work=part("check", jobs=3, task="media:resize", **fields),
        check=part(**fields),
    )
    flow.send(broker)
    end_all(broker, succeeded())
    first, second, _ = claim(broker, limit=3)
    broker.settle([(first, succeeded()), (second, failed("boom"))])

    row = broker.flow(flow.flow.id)

    assert (row.id, row.created_at, row.ended_at) == (flow.flow.id, clock.now(), None)
    assert (row.name, row.find, row.state) == ("", {}, b"{}")
    assert [node.id for node in row.nodes] == [
        flow.nodes[name] for name in ("check", "work", "last")
    ]
    check, work, last = row.nodes
    assert (check.task, check.jobs, check.needs) == ("mail:send", 1, ())
    assert (check.needs_left, check.jobs_left, check.bad) == (0, 0, 0)
    assert (work.task, work.jobs, work.needs) == ("media:resize", 3, (check.id,))
    assert (work.needs_left, work.jobs_left, work.bad) == (0, 1, 1)
    assert set(last.needs) == {work.id, check.id}
    assert (last.needs_left, last.jobs_left, last.bad) == (1, 1, 0)
    assert (check.on_failure, last.on_failure) == ("cancel", "continue")
    assert {node.flow for node in row.nodes} == {flow.flow.id}


def test_a_flow_keeps_what_it_was_sent_with(broker, clock):
    flow = a_flow(clock, one=part())
    named = Flow(
        id=flow.flow.id,
        nodes=flow.flow.nodes,
        name="access",
        find={"user": "62"},
        state=b'{"step":1}',
    )
    broker.enqueue(flow.jobs, flow=named)

    row = broker.flow(named.id)

    assert (row.name, row.find, row.state) == ("access", {"user": "62"}, b'{"step":1}')


def test_an_unknown_flow_is_none(broker, clock):
    job = a_job(clock)
    broker.enqueue([job])

    assert broker.flow(an_id(clock)) is None
    assert broker.flow(job.id) is None


def test_ended_flows_are_pruned_and_others_stay(broker, clock, fields):
    ended = a_flow(clock, one=part(**fields), two=part("one", **fields))
    ended.send(broker)
    end_all(broker, succeeded())
    end_all(broker, succeeded())
    open_ = a_flow(clock, one=part(**fields), two=part("one", **fields))
    open_.send(broker)
    end_all(broker, succeeded())
    clock.advance(seconds=100)

    broker.prune(clock.now() - 50)

    assert broker.flow(ended.flow.id) is None
    assert broker.flow(open_.flow.id) is not None
    assert end_all(broker, succeeded()) == open_.ids("two")
    assert broker.flow(open_.flow.id).ended_at == clock.now()


def test_why_names_what_a_job_waits_for(broker, clock, fields):
    flow = a_flow(
        clock,
        work=part(jobs=3, task="media:resize", **fields),
        last=part("work", **fields),
    )
    flow.send(broker)
    [job] = claim(broker)
    settle(broker, job, succeeded())

    why = broker.why(flow.ids("last")[0])

    assert (why.state, why.cause) == (WAITING, "needs")
    assert "2 jobs of 3 of the task 'media:resize'" in why.sentence


def test_why_tells_of_a_need_that_did_not_succeed(broker, clock, fields):
    flow = a_flow(clock, need=part(**fields), last=part("need", **fields))
    flow.send(broker)
    end_all(broker, failed("boom"))

    assert "a job that it needs did not succeed" in broker.why(flow.ids("last")[0]).sentence

    broker.act("retry", flow.ids("last"))
    assert (
        "1 job of the task 'mail:send' did not succeed" in broker.why(flow.ids("last")[0]).sentence
    )
