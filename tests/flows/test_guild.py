"""Guild's flows: a user's access is checked, each reward is a child of its own, then it ends.

In its words a job goes from queue to queue with one state; here each step is a job of its own, and
what a step needs is its argument. Every row is proved by what a caller can see.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock import State, current_job
from penstock.broker.filter import Filter
from tests.flows.conftest import CHILDREN


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


def test_a_correlation_id_goes_to_everything_that_comes_of_a_job(guild):
    """G62: found by it, from the first job to the last, in parcels and rows alike."""
    app = guild.t.app

    @app.task(name="leaf")
    def leaf(n: int) -> int:
        return n

    @app.task(name="receive")
    def receive(n: int) -> None:
        leaf.enqueue(n)

    @app.task(name="gather")
    def gather(_: list[int]) -> None: ...

    @app.task(name="root")
    def root() -> None:
        leaf.enqueue_many([(1,), (2,)])
        app.publish("sent", 3)
        gather.job(leaf.map([4, 5]).output).enqueue()
        current_job().spawn(leaf.map([6, 7]), then=leaf.job(8))
        leaf.options(tags={"correlation": "own"}).enqueue(9)

    receive.subscribe("sent")
    root.options(tags={"correlation": "request-1"}).enqueue()
    leaf.enqueue(10)
    guild.t.drain()

    found = app.broker.find(Filter(tags={"correlation": ("request-1",)})).jobs
    leaves = {msgspec.json.decode(job.body)["args"]["n"] for job in found if job.task == "leaf"}
    assert leaves == {1, 2, 3, 4, 5, 6, 7, 8}
    assert {job.task for job in found} == {"root", "leaf", "receive", "gather"}


def test_the_correlation_id_of_a_flow_is_that_of_all_its_jobs(guild):
    """G62."""
    app = guild.t.app

    @app.task(name="first")
    def first(n: int) -> int:
        return n

    @app.task(name="last")
    def last(_: list[int]) -> None: ...

    needed = first.map(range(3))
    last.options(tags={"correlation": "request-2"}).job(needed.output).enqueue()

    assert len(app.broker.find(Filter(tags={"correlation": ("request-2",)})).jobs) == 4


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


def test_what_is_done_is_told_at_every_stage(guild):
    """G22, G50: which step was the last to end, its children, and that all of it has, by itself."""
    handle = guild.access_flow().enqueue()
    stages: list[tuple[list[str], bool]] = []
    for _ in range(6):
        flow = guild.t.broker.flow(handle.id)
        done = [node.task for node in flow.nodes if not node.jobs_left]
        stages.append((done, flow.ended_at is not None))
        guild.t.drain(limit=1)

    check, rewards, finish = "access-check", "manage-reward:platform", "finish"
    assert stages == [
        ([], False),
        *[([check], False)] * 3,
        ([check, rewards], False),
        ([check, rewards, finish], True),
    ]


def test_what_children_were_given_and_returned_is_kept_with_their_flow(guild):
    """G28: by the node of the parent's flow that they are in, in their order."""
    handle = guild.access_flow().enqueue()
    guild.t.drain()

    children = guild.t.broker.outputs(guild.t.broker.flow(handle.id).nodes[1].id)

    assert [output.result for output in children] == [
        b'"%s granted"' % n.encode() for n in CHILDREN
    ]
    given = [json.loads(guild.t.broker.get(output.job).body)["args"] for output in children]
    assert [arguments["platform"] for arguments in given] == CHILDREN


@pytest.mark.parametrize("stage", range(6))
def test_what_is_deleted_at_any_stage_does_not_come_back(guild, stage):
    """G56: nobody writes it again; what needed it ends by its policy, and so does the flow."""
    handle = guild.access_flow().enqueue()
    guild.t.drain(limit=stage)
    flow = guild.t.broker.flow(handle.id)
    ids = [output.job for node in flow.nodes for output in guild.t.broker.outputs(node.id)]
    assert sorted(guild.t.broker.act("delete", ids)) == sorted(ids)

    guild.t.drain()
    guild.t.clock.advance(days=1)
    guild.t.drain()

    assert [guild.t.broker.get(id) for id in ids] == [None] * 5
    assert guild.t.broker.flow(handle.id).ended_at is not None
    assert sum(count.total for count in guild.t.broker.count()) == 0
    assert len(guild.calls) == stage


def test_two_flows_share_a_queue_and_part_after_it(guild):
    """G55: what follows is the flow's, or what the step itself found out."""
    app = guild.t.app

    @app.task(name="choose")
    def choose(user: int) -> None:
        current_job().spawn(guild.check.job(user) if user > 100 else guild.finish.job(["none"]))

    granted = guild.reward.job("discord", access=guild.check.job(62).output)
    chosen = [choose.job(7), choose.job(107)]
    app.enqueue([granted, *chosen])
    guild.t.drain()

    assert sorted(task for task, _ in guild.calls) == [
        "access-check",
        "access-check",
        "finish",
        "manage-reward:platform",
    ]
