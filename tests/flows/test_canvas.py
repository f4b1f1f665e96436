"""Chain, group, chord, map, starmap, chunks: with a single worker that has a single hand.

Whatever waits for others is a row in the store, so that no hand is ever held by it: with one hand
nothing can stand in its own way.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import App, State, chain, current_job, group
from penstock.job import Job
from tests.flows.conftest import work


@pytest.fixture
def ran(app: App) -> list[str]:
    """What ran, in its order; and the tasks, which are found in the app by their names."""
    ran: list[str] = []

    @app.task(name="double")
    def double(n: int) -> int:
        ran.append(f"double {n}")
        return 2 * n

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        ran.append(f"add {a} {b}")
        return a + b

    @app.task(name="total")
    def total(numbers: list[int]) -> int:
        ran.append("total")
        return sum(numbers)

    @app.task(name="odd")
    def odd(n: int) -> int:
        if n % 2 == 0:
            raise ValueError(n)
        return n

    return ran


def tasks_of(app: App) -> Any:
    """Its tasks, by name."""
    return (app.tasks[name] for name in ("double", "add", "total"))


def test_a_chain(app, ran):
    """B29, B30, B31: a pipeline of three steps, each with the value of the one before."""
    double, _, _ = tasks_of(app)
    handle = chain(double.job(5), double, double).enqueue()

    work(app)

    assert ran == ["double 5", "double 10", "double 20"]
    assert handle.result(timeout=0) == 40


def test_a_task_calls_another_when_it_has_its_value(app, ran):
    """B25, B29: by the action itself, which reaches the store; stored with its success."""
    double, _, _ = tasks_of(app)
    follow_ups: list[Job[int]] = []

    @app.task
    def start(n: int) -> int:
        follow_ups.append(double.job(n + 1))
        current_job().spawn(follow_ups)
        return n

    start.enqueue(1)

    work(app)

    assert ran == ["double 2"]
    assert app.handle(follow_ups[0].id).result(timeout=0) == 4


def test_a_hook_that_hears_of_an_end_starts_another_task(app, ran):
    """B29: the finish hook gets the value."""
    double, _, _ = tasks_of(app)

    @app.task
    def start(n: int) -> int:
        return n

    @app.hook("succeeded")
    def follow(job: Any, outcome: Any) -> None:
        if job.task == start.name:
            double.enqueue(int(outcome.result))

    start.enqueue(21)

    work(app)

    assert ran == ["double 21"]


def test_a_group(app, ran):
    """B31: side by side, and nothing after them."""
    double, add, _ = tasks_of(app)
    handles = group(double.job(1), add.job(2, 3), double.job(4)).enqueue()

    work(app)

    assert [handle.result(timeout=0) for handle in handles] == [2, 5, 8]


def test_a_chord(app, ran):
    """B31, G26: a group, and one job that gets all that they returned, once."""
    double, _, total = tasks_of(app)
    handle = chain(group(*[double.job(n) for n in range(10)]), total).enqueue()

    work(app)

    assert (ran.count("total"), ran[-1]) == (1, "total")
    assert handle.result(timeout=0) == 90


def test_a_chord_in_a_chord_in_a_chord(app, ran):
    """B31: whoever waits for others that wait for others."""
    double, _, total = tasks_of(app)
    job = total.job(double.map(range(3)).output)
    for _ in range(5):
        job = total.job([job.output, double.job(1).output])
    handle = job.enqueue()

    work(app)

    assert handle.result(timeout=0) == 6 + 5 * 2
    assert ran.count("total") == 6


def test_a_map(app, ran):
    """B31, B32, B33: one job per item, and the reduction by message passing alone."""
    double, _, total = tasks_of(app)
    handle = total.job(double.map(range(25)).output).enqueue()

    worker = work(app)

    assert handle.result(timeout=0) == 600
    assert (ran.count("total"), worker.settled) == (1, 26)


def test_a_starmap(app, ran):
    """B31: items that are several arguments."""
    _, add, total = tasks_of(app)
    pairs = [(1, 2), (3, 4), (5, 6)]
    handle = total.job(group(*[add.job(*pair) for pair in pairs]).output).enqueue()

    work(app)

    assert sorted(ran[:3]) == ["add 1 2", "add 3 4", "add 5 6"]
    assert handle.result(timeout=0) == 21


def test_chunks(app, ran):
    """B31: one job for several items, and one for all of those."""
    _, _, total = tasks_of(app)
    numbers = list(range(100))
    chunks = [numbers[start : start + 30] for start in range(0, 100, 30)]
    handle = total.job(total.map(chunks).output).enqueue()

    work(app)

    assert handle.result(timeout=0) == sum(numbers)
    assert ran == ["total"] * 5


def test_three_levels_of_tasks_that_spawn_tasks(app):
    """B27, B31, G30, G52: each waits for what it spawned, and one hand does all of it."""
    ended: list[int] = []

    @app.task(name="leaf")
    def leaf(n: int) -> int:
        ended.append(0)
        return n

    @app.task(name="gather")
    def gather(numbers: list[int], level: int) -> int:
        ended.append(level)
        return sum(numbers)

    @app.task(name="branch")
    def branch(level: int) -> int:
        below = branch.map([level - 1] * 3) if level > 1 else leaf.map(range(3))
        current_job().spawn(below, then=gather.job(below.output, level))
        return level

    @app.task(name="finish")
    def finish(level: int) -> str:
        return f"{ended.count(0)} leaves of {level} levels"

    handle = finish.job(branch.job(3).output).enqueue()

    worker = work(app)

    assert handle.result(timeout=0) == "27 leaves of 3 levels"
    assert (ended.count(1), ended.count(2), ended.count(3)) == (9, 3, 1)
    assert ended[-1] == 3
    assert worker.settled == 1 + 3 + 9 + 27 + 9 + 3 + 1 + 1


def test_five_tasks_deep(app):
    """B27."""
    depths: list[int] = []

    @app.task(name="dig")
    def dig(depth: int) -> int:
        depths.append(depth)
        if depth < 5:
            current_job().spawn(dig.job(depth + 1))
        return depth

    dig.enqueue(1)

    work(app)

    assert depths == [1, 2, 3, 4, 5]


def test_a_hundred_parents_wait_and_one_worker_is_free(app, ran):
    """G52: a parent that waits for its children holds nobody."""
    double, _, total = tasks_of(app)

    @app.task(name="parent")
    def parent(n: int) -> None:
        children = double.map([n, n])
        current_job().spawn(children, then=total.job(children.output))

    parent.map(range(100)).enqueue()

    work(app)

    assert (ran.count("total"), len(ran)) == (100, 300)


def test_the_members_of_a_group_end_and_one_event_follows(app, ran):
    """V46: a group of twenty, by two hands: one follow-up, after the last."""
    double, _, total = tasks_of(app)
    handle = total.job(double.map(range(20)).output).enqueue()

    work(app, threads=2)

    assert (ran.count("total"), ran[-1]) == (1, "total")
    attempts = [event for event in app.broker.history() if event.kind == "attempt"]
    assert attempts[-1].job == handle.id
    assert len(attempts) == 21


@pytest.mark.parametrize(
    ("policy", "state"), [("cancel", State.CANCELLED), ("continue", State.SUCCEEDED)]
)
def test_a_child_that_fails_ends_the_group_by_its_policy(app, ran, policy, state):
    """B31, G30, V46: nobody looks for ever for what will not come."""
    _, _, total = tasks_of(app)
    handle = total.job(app.tasks["odd"].map([1, 2, 3]).output).enqueue(on_failure=policy)

    work(app)

    assert handle.state() is state
    assert ran == ([] if policy == "cancel" else ["total"])
    assert app.broker.flow(handle.id).ended_at is not None
