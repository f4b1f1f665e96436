"""Guild's flows: a user's access is checked, each reward is a child of its own, then it ends.

In its words a job goes from queue to queue with one state; here each step is a job of its own, and
what a step needs is its argument. Every row is proved by what a caller can see.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from penstock import App, RetryLater, State, Task, chain, current_job
from penstock.filter import Filter
from penstock.retry import Retry
from penstock.testing import Testing

CHILDREN = ["discord", "telegram", "email"]


class Guild(NamedTuple):
    """The app under test, its tasks, and what they were called with."""

    t: Testing
    check: Task[..., Any]
    reward: Task[..., Any]
    finish: Task[..., Any]
    calls: list[tuple[str, dict[str, Any]]]

    def access_flow(self, user: int = 62) -> Any:
        access = self.check.job(user)
        rewards = self.reward.map(CHILDREN, access=access.output)
        return self.finish.job(rewards.output)


@pytest.fixture
def guild(url: str) -> Any:
    app = App("memory:")
    calls: list[tuple[str, dict[str, Any]]] = []

    @app.task(name="access-check", queue="access-check")
    def check(user: int) -> bool:
        calls.append(("access-check", {"user": user}))
        return user > 10

    @app.task(name="manage-reward:platform", queue="manage-reward:platform")
    def reward(platform: str, access: bool) -> str:
        calls.append(("manage-reward:platform", {"platform": platform, "access": access}))
        return f"{platform} {'granted' if access else 'revoked'}"

    @app.task(name="finish", queue="finish")
    def finish(rewards: list[str]) -> list[str]:
        calls.append(("finish", {"rewards": rewards}))
        return rewards

    with app.testing(url=url) as t:
        yield Guild(t, check, reward, finish, calls)
        app.resources.close()


def test_a_flow_visits_its_queues_in_order(guild):
    """G13, G19: three queues, one after the other; what the seed's example does."""
    handle = guild.access_flow().enqueue()

    ran = guild.t.drain()

    queues = [attempt.job.queue for attempt in ran]
    assert queues == ["access-check", *["manage-reward:platform"] * 3, "finish"]
    assert handle.result(timeout=0) == [f"{name} granted" for name in CHILDREN]


@pytest.mark.parametrize("point", ["claim", "run", "settle"])
@pytest.mark.parametrize("task", ["access-check", "manage-reward:platform", "finish"])
def test_a_worker_that_dies_between_two_steps_loses_nothing(guild, task, point):
    """G14: worst case a step runs twice, and the flow gets to its end."""
    handle = guild.access_flow().enqueue()

    with guild.t.crash_at(point, task):
        guild.t.drain()

    assert handle.result(timeout=0) == [f"{name} granted" for name in CHILDREN]
    assert len(guild.calls) == 5 + (point == "settle")
    assert guild.t.broker.flow(handle.id).ended_at is not None


def test_a_flow_shows_what_follows_what(guild):
    """G16, G17: its steps, their queues, who follows whom; and the jobs, by their ids."""
    handle = guild.access_flow().enqueue()

    flow = guild.t.broker.flow(handle.id)

    check, reward, finish = flow.nodes
    assert [node.task for node in flow.nodes] == [
        "access-check",
        "manage-reward:platform",
        "finish",
    ]
    assert (check.needs, reward.needs, finish.needs) == ((), (check.id,), (reward.id,))
    assert guild.t.broker.get(finish.id).queue == "finish"
    assert guild.t.broker.get(check.id).state is State.READY
    assert sorted((count.queue, count.task, count.total) for count in guild.t.broker.count()) == [
        ("access-check", "access-check", 1),
        ("finish", "finish", 1),
        ("manage-reward:platform", "manage-reward:platform", 3),
    ]


def test_a_new_flow_is_made_by_saying_what_it_is(guild):
    """G36: nothing is registered but tasks; another flow of the same ones needs no code of ours."""
    first = guild.check.job(1)
    both = [
        guild.reward.job("discord", access=first.output).output,
        guild.reward.job("email", True).output,
    ]
    handle = guild.finish.job(both).enqueue()

    guild.t.drain()

    assert handle.result(timeout=0) == ["discord revoked", "email granted"]


def test_children_are_named_after_their_parent_and_are_as_many_as_there_are_parameters(guild):
    """G23, G24."""
    guild.access_flow().enqueue()
    guild.t.drain()

    children = guild.t.jobs("manage-reward:platform")

    assert len(children) == len(CHILDREN)
    assert {job.queue for job in children} == {"manage-reward:platform"}


def test_children_see_what_their_parent_found_and_nothing_else(guild):
    """G6, G25: a job gets the arguments that its task declares."""
    guild.access_flow(user=7).enqueue()

    guild.t.drain()

    seen = [given for task, given in guild.calls if task == "manage-reward:platform"]
    assert seen == [{"platform": name, "access": False} for name in CHILDREN]


def test_a_child_starts_nothing_by_itself(guild):
    """G27: what follows is for all of them together, unless somebody needs one of them."""
    handle = guild.access_flow().enqueue()
    guild.t.drain(limit=3)  # the check, and two of three children

    assert handle.state() is State.WAITING
    [before] = [node for node in guild.t.broker.flow(handle.id).nodes if node.task == "finish"]
    assert (before.needs_left, before.jobs_left) == (1, 1)
    guild.t.drain(limit=1)

    assert handle.state() is State.READY


def test_children_are_counted_down_in_their_parents_flow(guild):
    """G29: the parent fills the queue of its children; each of them counts itself off."""
    handle = guild.access_flow().enqueue()
    left = []
    for _ in range(5):
        flow = guild.t.broker.flow(handle.id)
        left.append([node.jobs_left for node in flow.nodes])
        guild.t.drain(limit=1)

    assert left == [[1, 3, 1], [0, 3, 1], [0, 2, 1], [0, 1, 1], [0, 0, 1]]
    assert guild.t.broker.flow(handle.id).ended_at is not None


def test_a_child_may_have_children_and_a_step_of_its_own(guild):
    """G30: several levels; a child with a next step; and one that fails where that is allowed."""
    app = guild.t.app
    down = {"telegram"}

    @app.task(name="grant")
    def grant(platform: str) -> str:
        if platform in down:
            raise ConnectionError(platform)
        return f"granted {platform}"

    @app.task(name="tell")
    def tell(what: str | None) -> str:
        return f"told of {what}"

    steps = [
        tell.options(on_failure="continue").job(grant.job(platform).output) for platform in CHILDREN
    ]
    handle = guild.finish.job([step.output for step in steps]).enqueue()

    guild.t.drain()

    assert handle.result(timeout=0) == [
        "told of granted discord",
        "told of None",
        "told of granted email",
    ]


@pytest.mark.parametrize("point", ["run", "settle"])
def test_a_parent_whose_worker_dies_has_one_set_of_children(guild, point):
    """G51: children are stored with the parent's success, and so once."""
    app = guild.t.app

    @app.task(name="parent")
    def parent() -> int:
        rewards = guild.reward.map(CHILDREN, access=True)
        current_job().spawn(rewards, then=guild.finish.job(rewards.output))
        return len(CHILDREN)

    parent.enqueue()

    with guild.t.crash_at(point, "parent"):
        guild.t.drain()

    assert len(guild.t.jobs("manage-reward:platform", State.SUCCEEDED)) == 3
    assert len(guild.t.jobs("finish", State.SUCCEEDED)) == 1


def test_the_last_step_of_a_worker_that_lost_its_lease_is_refused(guild):
    """G48: the right verdict where nothing follows, too."""
    broker = guild.t.broker
    handle = guild.access_flow().enqueue()
    guild.t.drain(limit=4)

    with guild.t.crash_at("settle", "finish"):
        ran = guild.t.drain()

    assert [attempt.job.attempt for attempt in ran] == [1, 2]
    assert broker.flow(handle.id).ended_at is not None
    attempts = [event for event in broker.history(job=handle.id) if event.kind == "attempt"]
    assert [event.state for event in attempts] == [State.READY, State.SUCCEEDED]


def test_what_is_gone_is_told_and_never_run_with_nothing(guild):
    """G49: a step whose arguments are not there any more fails with a reason, and is not called."""
    first = guild.check.job(62)
    handle = guild.reward.job("discord", access=first.output).enqueue()
    guild.t.drain(limit=1)
    guild.t.broker.delete([first.id])

    guild.t.drain()

    job = guild.t.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "needs")
    assert [task for task, _ in guild.calls] == ["access-check"]


def test_a_step_nobody_began_in_time_is_told_as_expired(guild):
    """G49: reported, not run."""
    handle = guild.check.options(expires=60).enqueue(62)
    guild.t.clock.advance(seconds=61)

    guild.t.drain()

    job = guild.t.broker.get(handle.id)
    assert (job.state, job.reason) == (State.CANCELLED, "expired")
    assert guild.calls == []


def test_one_correlation_id_from_the_first_step_to_the_last_child(guild):
    """G62: it rides along in headers; ids are in the order of time, and the flow knows its age."""
    app = guild.t.app
    seen: list[str] = []

    @app.on_enqueue
    def carry(headers: dict[str, str], _: object) -> None:
        try:
            headers.setdefault("correlation", current_job().headers["correlation"])
        except (RuntimeError, KeyError):
            headers.setdefault("correlation", "request-1")

    @app.task(name="child")
    def child(n: int) -> int:
        seen.append(current_job().headers["correlation"])
        return n

    @app.task(name="parent")
    def parent() -> None:
        seen.append(current_job().headers["correlation"])
        children = child.map(range(3))
        current_job().spawn(children, then=child.job(9))

    before = guild.t.clock.now()
    first = parent.enqueue()
    guild.t.clock.advance(seconds=1)
    guild.t.drain()

    assert seen == ["request-1"] * 5
    children = guild.t.jobs("child")
    assert all(job.id > first.id for job in children)
    flow = guild.t.broker.flow(children[-1].id)
    assert flow.created_at > before


def test_work_handed_to_another_system_is_traced_to_its_end(guild):
    """G63: the child ends when it has handed over; what became of it is found by its id."""
    app = guild.t.app

    @app.task(name="elsewhere:grant", queue="elsewhere")
    def grant(platform: str) -> str:
        return f"{platform} granted by others"

    @app.task(name="hand-over")
    def hand_over(platform: str) -> str:
        return grant.enqueue(platform).id

    handle = hand_over.enqueue("discord")
    guild.t.drain()

    there = app.handle(handle.result(timeout=0))

    assert there.result(timeout=0) == "discord granted by others"


def test_a_task_asks_to_run_later_and_says_why(guild):
    """G41: at that time, with no retry consumed, and the reason is there to be read."""
    app = guild.t.app
    runs: list[int] = []

    @app.task(name="busy", retry=Retry(limit=0))
    def busy() -> None:
        runs.append(current_job().attempt)
        if len(runs) == 1:
            raise RetryLater(after=90, note="the platform is rate limited")

    handle = busy.enqueue()
    guild.t.drain()
    job = guild.t.broker.get(handle.id)
    assert (job.state, job.failures, job.run_at) == (State.READY, 0, guild.t.clock.now() + 90)
    assert "the platform is rate limited" in handle.why().sentence
    guild.t.clock.advance(seconds=89)
    assert guild.t.drain() == []
    guild.t.clock.advance(seconds=1)
    guild.t.drain()

    assert runs == [1, 2]
    assert handle.state() is State.SUCCEEDED
    [put_back, _] = guild.t.broker.history(job=handle.id)
    assert (put_back.reason, put_back.error) == ("later", "the platform is rate limited")


def test_each_step_has_retries_of_its_own(guild):
    """G42: one retry is two runs; the next step begins at zero; the task can see the count."""
    app = guild.t.app
    seen: list[tuple[str, int]] = []

    @app.task(name="first", retry=Retry(limit=1, delay=0))
    def first() -> int:
        seen.append(("first", current_job().attempt))
        if len(seen) == 1:
            raise OSError("once")
        return 1

    @app.task(name="second", retry=Retry(limit=1, delay=0))
    def second(n: int) -> int:
        seen.append(("second", current_job().attempt))
        raise OSError("always")

    @app.task(name="never-again")
    def plain() -> None:
        seen.append(("plain", current_job().attempt))
        raise OSError("no retry unless asked for")

    handle = chain(first.job(), second).enqueue()
    plain.enqueue()
    guild.t.drain()

    assert sorted(seen) == [("first", 1), ("first", 2), ("plain", 1), ("second", 1), ("second", 2)]
    job = guild.t.broker.get(handle.id)
    assert (job.state, job.failures) == (State.FAILED, 2)


def test_what_is_delayed_is_listed_with_its_time(guild):
    """G38."""
    soon = guild.check.options(delay=60).enqueue(1)
    late = guild.check.options(delay=7200).enqueue(2)
    now = guild.t.clock.now()

    jobs = {job.id: job.run_at for job in guild.t.broker.find(Filter(queue=("access-check",))).jobs}

    assert jobs == {soon.id: now + 60, late.id: now + 7200}
    [count] = guild.t.broker.count()
    assert (count.scheduled, count.ready) == (2, 0)


def test_a_step_may_go_on_with_another_priority(guild):
    """G53: the higher first, and a flow may change it from one step to the next."""
    app = guild.t.app
    order: list[str] = []

    @app.task(name="step")
    def step(name: str) -> str:
        order.append(name)
        return f"{name}, then"

    app.enqueue(
        [
            chain(step.options(priority=1).job("low"), step.options(priority=9)),
            step.options(priority=2).job("middle"),
            step.options(priority=5).job("high"),
        ]
    )

    guild.t.drain()

    assert order == ["high", "middle", "low", "low, then"]
    assert [job.priority for job in sorted(guild.t.jobs("step"), key=lambda job: job.priority)] == [
        1,
        2,
        5,
        9,
    ]


def test_a_step_beyond_its_time_fails_and_says_so(guild):
    """G45: a deadline is a failure, not silence; and it ends the flow by its policy."""
    app = guild.t.app

    @app.task(name="slow", timeout=60)
    def slow() -> bool:
        guild.t.clock.advance(seconds=61)
        return True

    first = slow.job()
    handle = guild.reward.job("discord", access=first.output).enqueue()
    guild.t.drain()

    job = guild.t.broker.get(first.id)
    assert (job.state, job.reason) == (State.FAILED, "timeout")
    assert handle.state() is State.CANCELLED
