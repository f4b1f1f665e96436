"""The tree of a detached job: who enqueued whom, and what happened to all of them."""

from __future__ import annotations

import pytest

from penstock import App, State, current_job
from penstock.broker.filter import Filter
from penstock.job import PARENT
from penstock.operate.job_tree import family
from penstock.testing.clock import Clock


def the_app(broker):
    app = App(broker=broker)

    @app.task(name="root", detached=True)
    def root(how: str) -> None:
        job = current_job()
        if how == "step":
            for n in (1, 2):
                once = branch.options(unique=f"{job.id}:{n}", unique_until="time", unique_for=3600)
                job.step(f"part {n}", lambda once=once, n=n: once.enqueue(n).id)
        elif how == "spawn":
            job.spawn([branch.job(1), branch.job(2)])
        elif how == "flow":
            total.job(leaf.map(range(5)).output, branch.job(1).output).enqueue()
        else:
            leaf.enqueue_many([(n,) for n in range(3)])

    @app.task(name="branch")
    def branch(n: int) -> int:
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
    return [(branch.level, branch.task, branch.state) for branch in found.branches]


DONE = State.SUCCEEDED
THREE_LEVELS = [
    (0, "root", DONE),
    (1, "branch", DONE),
    (2, "leaf", DONE),
    (1, "branch", DONE),
    (2, "leaf", DONE),
]


@pytest.mark.parametrize("how", ["step", "spawn"])
def test_a_tree_of_three_levels_with_the_events_of_all(app, broker, clock, how):
    """A31, A33: of jobs that a step enqueued, and of jobs that were spawned."""
    root = app.tasks["root"].enqueue(how)
    drained(app, clock)

    found = family(broker, root.id)

    assert drawn(found) == THREE_LEVELS
    parents = {branch.id: branch.parent for branch in found.branches}
    assert [parents[branch.parent] for branch in found.branches if branch.level == 2] == [
        root.id,
        root.id,
    ]
    kinds = [[event.kind for event in branch.events] for branch in found.branches]
    assert kinds[0][0] == "event"  # queued
    assert kinds[1:3] == [["event", "attempt"], ["attempt"]]


def test_events_of_the_tree_since_a_position(app, broker, clock):
    """A31: only what came after it, of every job of the tree."""
    root = app.tasks["root"].enqueue("step")
    drained(app, clock)
    events = [event for branch in family(broker, root.id).branches for event in branch.events]
    positions = sorted(event.position for event in events)

    later = family(broker, root.id, after=positions[3])

    assert drawn(later) == THREE_LEVELS
    found = sorted(event.position for branch in later.branches for event in branch.events)
    assert found == positions[4:]


def test_a_flow_stands_below_the_job_that_it_is_named_after_and_a_map_is_one_line(
    app, broker, clock
):
    """A31: flow members."""
    root = app.tasks["root"].enqueue("flow")
    drained(app, clock)

    found = family(broker, root.id)

    assert set(drawn(found)) == {
        (0, "root", DONE),
        (1, "branch", DONE),
        (2, "leaf", DONE),  # that the branch enqueued
        (1, "total", DONE),
        (2, "leaf", None),  # all of the map
    }
    assert len(found.branches) == 5
    [mapped] = [branch for branch in found.branches if branch.state is None]
    assert (mapped.task, mapped.jobs, mapped.jobs_left) == ("leaf", 5, 0)


def test_what_is_enqueued_in_bulk_stays_in_parcels(app, broker, clock):
    root = app.tasks["root"].enqueue("bulk")
    drained(app, clock)

    assert drawn(family(broker, root.id)) == [(0, "root", DONE)]
    assert len(broker.find(Filter(task=("leaf",))).jobs) == 3


def test_jobs_of_no_tree_carry_no_tag(app, broker, clock):
    app.tasks["branch"].enqueue(1)
    drained(app, clock)

    [leaf] = broker.find(Filter(task=("leaf",))).jobs

    assert PARENT not in leaf.tags


def test_more_than_can_be_shown_is_said(app, broker, clock):
    root = app.tasks["root"].enqueue("step")
    drained(app, clock)

    found = family(broker, root.id, most=3)

    assert (len(found.branches), found.more) == (3, True)


def test_a_job_that_is_not_known_has_an_empty_tree(broker, app):
    unknown = app.tasks["leaf"].job(1).id

    [branch] = family(broker, unknown).branches

    assert (branch.task, branch.state, branch.events) == (None, None, ())
