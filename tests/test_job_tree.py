"""The tree of a detached job: who enqueued whom, and what happened to all of them."""

from __future__ import annotations

import pytest

from penstock import App, State, current_job
from penstock.broker.filter import Filter
from penstock.job import PARENT
from penstock.operate.job_tree import read_job_tree
from penstock.testing.clock import Clock


def the_app(broker):
    app = App(broker=broker)

    @app.task(name="root", detached=True)
    def root(how: str) -> None:
        job = current_job()
        if how == "step":
            for n in (1, 2):
                once = node.options(unique=f"{job.id}:{n}", unique_until="time", unique_for=3600)
                job.step(f"part {n}", lambda once=once, n=n: once.enqueue(n).id)
        elif how == "spawn":
            job.spawn([node.job(1), node.job(2)])
        elif how == "flow":
            total.job(leaf.map(range(5)).output, node.job(1).output).enqueue()
        else:
            leaf.enqueue_many([(n,) for n in range(3)])

    @app.task(name="node")
    def node(n: int) -> int:
        current_job().event("grown", n=n)
        leaf.enqueue(n)
        return n

    @app.task(name="leaf")
    def leaf(n: int) -> int:
        return n

    @app.task(name="total")
    def total(parts: list[int], one: int) -> int:
        return sum(parts) + one

    return app


@pytest.fixture
def app(broker):
    return the_app(broker)


def drained(app, clock: Clock):
    """Run all that is due in this thread, on the store of the test."""
    from penstock.testing.inline_worker import InlineWorker

    InlineWorker(app, clock).drain(None, twice=False, state=None)


def drawn(found):
    return [(node.level, node.task, node.state) for node in found.nodes]


DONE = State.SUCCEEDED
THREE_LEVELS = [
    (0, "root", DONE),
    (1, "node", DONE),
    (2, "leaf", DONE),
    (1, "node", DONE),
    (2, "leaf", DONE),
]


@pytest.mark.parametrize("how", ["step", "spawn"])
def test_a_tree_of_three_levels_with_the_events_of_all(app, broker, clock, how):
    """A31, A33: of jobs that a step enqueued, and of jobs that were spawned."""
    root = app.tasks["root"].enqueue(how)
    drained(app, clock)

    found = read_job_tree(broker, root.id)

    assert drawn(found) == THREE_LEVELS
    parents = {node.id: node.parent for node in found.nodes}
    assert [parents[node.parent] for node in found.nodes if node.level == 2] == [
        root.id,
        root.id,
    ]
    kinds = [[event.kind for event in node.events] for node in found.nodes]
    assert kinds[0][0] == "event"  # queued
    assert kinds[1:3] == [["event", "attempt"], ["attempt"]]


def test_events_of_the_tree_since_a_position(app, broker, clock):
    """A31: only what came after it, of every job of the tree."""
    root = app.tasks["root"].enqueue("step")
    drained(app, clock)
    events = [event for node in read_job_tree(broker, root.id).nodes for event in node.events]
    positions = sorted(event.position for event in events)

    later = read_job_tree(broker, root.id, after=positions[3])

    assert drawn(later) == THREE_LEVELS
    found = sorted(event.position for node in later.nodes for event in node.events)
    assert found == positions[4:]


def test_a_flow_stands_below_the_job_that_it_is_named_after_and_a_map_is_one_line(
    app, broker, clock
):
    """A31: flow members."""
    root = app.tasks["root"].enqueue("flow")
    drained(app, clock)

    found = read_job_tree(broker, root.id)

    assert set(drawn(found)) == {
        (0, "root", DONE),
        (1, "node", DONE),
        (2, "leaf", DONE),  # that the node enqueued
        (1, "total", DONE),
        (2, "leaf", None),  # all of the map
    }
    assert len(found.nodes) == 5
    [mapped] = [node for node in found.nodes if node.state is None]
    assert (mapped.task, mapped.jobs, mapped.jobs_left) == ("leaf", 5, 0)


def test_what_is_enqueued_in_bulk_stays_in_parcels(app, broker, clock):
    root = app.tasks["root"].enqueue("bulk")
    drained(app, clock)

    assert drawn(read_job_tree(broker, root.id)) == [(0, "root", DONE)]
    assert len(broker.find(Filter(task=("leaf",))).jobs) == 3


def test_jobs_of_no_tree_carry_no_tag(app, broker, clock):
    app.tasks["node"].enqueue(1)
    drained(app, clock)

    [leaf] = broker.find(Filter(task=("leaf",))).jobs

    assert PARENT not in leaf.tags


def test_more_than_can_be_shown_is_said(app, broker, clock):
    root = app.tasks["root"].enqueue("step")
    drained(app, clock)

    found = read_job_tree(broker, root.id, most=3)

    assert (len(found.nodes), found.more) == (3, True)


def test_a_job_that_is_not_known_has_an_empty_tree(broker, app):
    unknown = app.tasks["leaf"].job(1).id

    [node] = read_job_tree(broker, unknown).nodes

    assert (node.task, node.state, node.events) == (None, None, ())
