"""Signals: a job waits for a word from outside, and nobody is held. Runs against every broker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock import App, wait_for
from penstock.broker.filter import Filter
from penstock.errors import Refused
from penstock.flows.flow import WAIT_TASK, JobOutput
from penstock.flows.signals import TAG
from penstock.job import State, succeeded
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    claim_for,
    enqueue_and_claim,
    history_of,
    ids_of,
    part,
    settle,
)

VALUE = b'{"by":"ada"}'
WAITING, SUCCEEDED, CANCELLED = State.WAITING, State.SUCCEEDED, State.CANCELLED


def a_wait(name: str = "approve-62", **fields: Any) -> Any:
    return part(task=WAIT_TASK, tags={TAG: name}, **fields)


def an_approval(clock, name: str = "approve-62", **fields: Any) -> Any:
    """A wait, and a job that needs it."""
    return a_flow(clock, wait=a_wait(name, **fields), ship=part("wait"))


def test_it_ends_who_waits_and_whoever_needs_that_runs(broker, clock):
    """Without a worker, and in one step."""
    flow = an_approval(clock)
    flow.send(broker)
    assert claim(broker, limit=10) == []
    clock.advance(seconds=60)

    assert broker.signal("approve-62", VALUE, "ada", "fine") == flow.ids("wait")

    [wait] = [broker.get(job_id) for job_id in flow.ids("wait")]
    assert (wait.state, wait.result, wait.ended_at) == (SUCCEEDED, VALUE, clock.now())
    assert ids_of(claim(broker, limit=10)) == flow.ids("ship")
    assert broker.outputs(flow.nodes["wait"]) == [JobOutput(wait.id, SUCCEEDED, VALUE)]


def test_no_worker_is_ever_handed_a_wait(broker, clock):
    an_approval(clock).send(broker)

    assert claim_for(broker, a_worker(tasks={WAIT_TASK: 1}), limit=10) == []


def test_its_end_is_one_row_of_history(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)

    broker.signal("approve-62", VALUE, "ada", "fine")

    [event] = history_of(broker, flow.ids("wait")[0])
    assert (event.kind, event.state, event.at) == ("attempt", SUCCEEDED, clock.now())
    assert (event.task, event.tags) == (WAIT_TASK, {TAG: "approve-62"})
    assert (event.worker, event.started_at, event.attempt) == (None, None, 0)
    assert event.result == VALUE
    assert msgspec.json.decode(event.data) == {
        "signal": "approve-62",
        "author": "ada",
        "reason": "fine",
    }


def test_all_that_wait_for_the_name_end_and_no_other(broker, clock):
    flows = [an_approval(clock) for _ in range(3)]
    other = an_approval(clock, "approve-63")
    for flow in (*flows, other):
        flow.send(broker)

    ended = broker.signal("approve-62", VALUE)

    assert ended == sorted(job_id for flow in flows for job_id in flow.ids("wait"))
    assert other.states(broker, "wait") == other.states(broker, "ship") == [WAITING]
    ships = sorted(job_id for flow in flows for job_id in flow.ids("ship"))
    assert sorted(ids_of(claim(broker, limit=10))) == ships


def test_where_nobody_waits_nothing_is_kept(broker, clock):
    assert broker.signal("approve-62", VALUE) == []
    flow = an_approval(clock)

    flow.send(broker)

    assert flow.states(broker, "wait") == [WAITING]
    assert [event.kind for event in broker.history()] == ["flow"]


def test_the_first_of_two_stands(broker, clock):
    """Sent again because an answer was lost, it does no harm."""
    flow = an_approval(clock)
    flow.send(broker)
    broker.signal("approve-62", VALUE)

    assert broker.signal("approve-62", b"2") == []

    assert [output.result for output in broker.outputs(flow.nodes["wait"])] == [VALUE]
    assert len(history_of(broker, flow.ids("wait")[0])) == 1


def test_the_flow_sent_again_after_the_signal_changes_nothing(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)
    broker.signal("approve-62", VALUE)

    assert flow.send(broker).known == frozenset(ids_of(flow.jobs))

    assert flow.states(broker, "wait") == [SUCCEEDED]


def test_jobs_of_other_tasks_with_such_a_tag_are_left_alone(broker, clock):
    job = a_job(clock, tags={TAG: "approve-62"})
    flow = a_flow(clock, need=part(), tagged=part("need", tags={TAG: "approve-62"}))
    broker.enqueue([job])
    flow.send(broker)

    assert broker.signal("approve-62", VALUE) == []

    assert broker.get(job.id).state is State.READY
    assert flow.states(broker, "tagged") == [WAITING]


def test_one_that_did_not_come_in_time_counts_as_any_end(broker, clock):
    """The policy of the flow decides what follows."""
    flow = a_flow(
        clock,
        wait=a_wait(expires_at=clock.now() + 60),
        ship=part("wait"),
        tell=part("wait", on_failure="continue"),
    )
    flow.send(broker)
    clock.advance(seconds=60)

    broker.recover()

    [wait] = [broker.get(job_id) for job_id in flow.ids("wait")]
    assert (wait.state, wait.reason) == (CANCELLED, "expired")
    assert flow.states(broker, "ship") == [CANCELLED]
    assert ids_of(claim(broker, limit=10)) == flow.ids("tell")


def test_a_signal_after_the_time_is_over_ends_nobody(broker, clock):
    """Also if nobody has looked since."""
    flow = an_approval(clock, expires_at=clock.now() + 60)
    flow.send(broker)
    clock.advance(seconds=60)

    assert broker.signal("approve-62", VALUE) == []

    broker.recover()
    assert flow.states(broker, "wait") == flow.states(broker, "ship") == [CANCELLED]


@pytest.mark.parametrize("verb", ["cancel", "delete"])
def test_one_that_is_not_waited_for_any_more_ends_nobody(broker, clock, verb):
    flow = an_approval(clock)
    flow.send(broker)
    assert broker.act(verb, flow.ids("wait")) == flow.ids("wait")

    assert broker.signal("approve-62", VALUE) == []

    assert flow.states(broker, "ship") == [CANCELLED]
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_retried_it_waits_again_and_so_does_what_needs_it(broker, clock):
    flow = an_approval(clock, expires_at=clock.now() + 60)
    flow.send(broker)
    clock.advance(seconds=60)
    broker.recover()

    assert broker.act("retry", flow.ids("wait")) == flow.ids("wait")

    [wait] = [broker.get(job_id) for job_id in flow.ids("wait")]
    assert (wait.state, wait.expires_at) == (WAITING, None)
    assert flow.states(broker, "ship") == [WAITING]
    assert claim(broker, limit=10) == []
    assert broker.signal("approve-62", VALUE) == flow.ids("wait")
    assert ids_of(claim(broker, limit=10)) == flow.ids("ship")


def test_retried_within_its_time_it_keeps_that(broker, clock):
    deadline = clock.now() + 60
    flow = an_approval(clock, expires_at=deadline)
    flow.send(broker)
    broker.act("cancel", flow.ids("wait"))

    broker.act("retry", flow.ids("wait"))

    [wait] = [broker.get(job_id) for job_id in flow.ids("wait")]
    assert (wait.state, wait.expires_at) == (WAITING, deadline)


def test_one_that_succeeded_is_not_retried(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)
    broker.signal("approve-62", VALUE)

    assert broker.act("retry", flow.ids("wait")) == []


def test_a_wait_alone(broker, clock):
    flow = a_flow(clock, wait=a_wait())
    flow.send(broker)

    assert broker.signal("approve-62", b"null") == flow.ids("wait")

    assert flow.states(broker, "wait") == [SUCCEEDED]
    assert broker.flow(flow.flow.id).ended_at == clock.now()


def test_it_is_counted_found_and_explained_while_it_waits(broker, clock):
    flow = an_approval(clock, expires_at=clock.now() + 3600)
    flow.send(broker)
    [wait], [ship] = flow.ids("wait"), flow.ids("ship")

    waiting = {count.task: (count.waiting, count.total) for count in broker.count()}
    assert waiting == {WAIT_TASK: (1, 1), "mail:send": (1, 1)}
    assert ids_of(broker.find(Filter(tags={TAG: ("approve-62",)})).jobs) == [wait]
    why = broker.why(wait)
    assert (why.state, why.cause) == (WAITING, "signal")
    assert "the signal 'approve-62' until " in why.sentence
    assert broker.why(ship).cause == "needs"
    assert wait in broker.why(ship).sentence


def test_once_it_ended_it_is_counted_and_found_as_what_succeeded(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)

    broker.signal("approve-62", VALUE)

    assert {count.task: count.total for count in broker.count() if count.total} == {"mail:send": 1}
    [found] = broker.find(Filter(tags={TAG: ("approve-62",)})).jobs
    assert (found.state, found.result) == (SUCCEEDED, VALUE)
    assert broker.why(found.id).cause == "ended"


def test_ended_and_over_it_is_pruned(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)
    broker.signal("approve-62", VALUE)
    [ship] = claim(broker)
    settle(broker, ship, succeeded())
    clock.advance(days=40)

    broker.prune(clock.now() - 86400)

    assert flow.states(broker, "wait") == [None]
    assert broker.flow(flow.flow.id) is None
    assert broker.find(Filter(tags={TAG: ("approve-62",)})).jobs == []


def test_a_wait_outlives_pruning(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)
    clock.advance(days=40)

    broker.prune(clock.now() - 86400)

    assert broker.signal("approve-62", VALUE) == flow.ids("wait")
    assert ids_of(claim(broker, limit=10)) == flow.ids("ship")


def test_spawned_it_waits_and_whoever_needs_the_parent_waits_for_it(broker, clock):
    """G63: a child that is handed to somebody outside, with its outcome."""
    whole = a_flow(clock, ask=part(), last=part("ask"))
    whole.send(broker)
    [parent] = claim(broker)
    more = a_flow(clock, whole.flow.id, wait=a_wait(), ship=part("wait"))
    settle(broker, parent, more.spawned_by(succeeded()))
    assert claim(broker, limit=10) == []

    broker.signal("approve-62", VALUE)

    [ship] = claim(broker, limit=10)
    assert [ship.id] == more.ids("ship")
    settle(broker, ship, succeeded())
    assert ids_of(claim(broker, limit=10)) == whole.ids("last")


def test_spawned_by_a_job_in_no_flow(broker, clock):
    parent = enqueue_and_claim(broker, clock)
    more = a_flow(clock, wait=a_wait(), ship=part("wait"))
    settle(broker, parent, more.spawned_by(succeeded()))
    assert claim(broker, limit=10) == []

    assert broker.signal("approve-62", VALUE) == more.ids("wait")

    assert ids_of(claim(broker, limit=10)) == more.ids("ship")


def test_from_a_program_it_is_the_same(broker, clock):
    """Its id holds no time: it is stored, ended, found and pruned as any other."""
    app = App(broker=broker)
    ship = app.task(name="mail:send")(lambda value: value)
    wait = wait_for("approve-62", timeout=60)
    handle = ship.job(wait.output).enqueue()
    assert broker.get(wait.id).expires_at == clock.now() + 60

    assert app.signal("approve-62", {"by": "ada"}, author="ada") == 1

    [job] = claim(broker, limit=10)
    assert job.id == handle.id
    assert broker.outputs(wait.id) == [JobOutput(wait.id, SUCCEEDED, VALUE)]
    assert broker.flow(handle.id).nodes[0].id == wait.id
    settle(broker, job, succeeded())
    clock.advance(days=40)
    broker.prune(clock.now() - 86400)
    assert broker.get(wait.id) is None
    assert broker.flow(handle.id) is None


def test_it_waits_for_nothing_else(broker, clock):
    flow = a_flow(clock, need=part(), wait=part("need", task=WAIT_TASK, tags={TAG: "approve-62"}))

    with pytest.raises(Refused, match="cannot need other jobs"):
        flow.send(broker)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "nul\x00"])
def test_a_name_that_is_none_is_refused(broker, name):
    with pytest.raises(Refused, match="signal"):
        broker.signal(name, VALUE)


@pytest.mark.parametrize("name", ["ä/ö #62 'x' %s", "\N{SLICE OF PIZZA}" * 200])
def test_a_name_may_be_any_text_that_people_can_read(broker, clock, name):
    flow = an_approval(clock, name)
    flow.send(broker)

    assert broker.signal(name, VALUE) == flow.ids("wait")


def test_whoever_asked_is_kept_however_it_was_spelt(broker, clock):
    flow = an_approval(clock)
    flow.send(broker)

    broker.signal("approve-62", VALUE, "a\x00da", "\ud800")

    [event] = history_of(broker, flow.ids("wait")[0])
    assert msgspec.json.decode(event.data)["author"] == "a\N{SYMBOL FOR NULL}da"


def test_whoever_waits_for_work_is_woken(broker, clock):
    """No polling: a hint comes with the signal."""
    flow = an_approval(clock)
    flow.send(broker)
    broker.wait(None, 0)
    assert claim(broker, limit=10) == []
    while broker.wait(None, 0.05):
        pass

    broker.signal("approve-62", VALUE)

    assert broker.wait(None, 10)
    assert ids_of(claim(broker, limit=10)) == flow.ids("ship")
