"""Flows with a name and a state: enqueued, found, read and looked after, as people write it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock import (
    App,
    FlowHandle,
    JobCancelled,
    Refused,
    ResultGone,
    StaleLease,
    State,
    current_job,
    group,
)
from penstock.broker.protocol import Broker
from penstock.brokers.memory import MemoryBroker
from penstock.run.attempt import run
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_worker, claim_for


@dataclass
class AccessState:
    user: int = 0
    access: bool | None = None
    rewards: dict[str, str] = field(default_factory=dict)


class StructState(msgspec.Struct):
    user: int = 0
    access: bool | None = None
    rewards: dict[str, str] = {}


class ModelState(pydantic.BaseModel):
    user: int = 0
    access: bool | None = None
    rewards: dict[str, str] = {}


Drain = Callable[..., list[str]]


@pytest.fixture
def app(broker: Broker) -> App:
    return App(broker=broker)


@pytest.fixture
def memory_app(clock: Clock) -> App:
    return App(broker=MemoryBroker(clock))


def drain(app: App, limit: int = 100) -> list[str]:
    """Run what there is, one job after the other; the tasks in the order that they ran."""
    ran: list[str] = []
    while len(ran) < limit and (jobs := claim_for(app.broker, a_worker(tasks=app.known_tasks()))):
        for job in jobs:
            task = app.task_named(job.task)
            assert task is not None
            outcome = run(app, task, job)
            if outcome is not None:
                app.broker.settle([(job, outcome)])
            ran.append(job.task.partition(":")[2])
    return ran


def access_tasks(app: App) -> tuple[Any, Any, Any]:
    @app.task(name="t:check", queue="access-check")
    def check(user: int) -> bool:
        current_job().flow.state.merge(access=user > 10)
        return user > 10

    @app.task(name="t:reward", queue="manage-reward:discord")
    def reward(platform: str, access: bool) -> str:
        flow = current_job().flow
        said = f"{platform} for {flow.find['user']}: {access}"
        if platform == "bad":
            raise ValueError("no such platform")
        flow.state.merge(rewards={platform: said})
        return said

    @app.task(name="t:finish")
    def finish(rewards: list[str]) -> int:
        return len(rewards)

    return check, reward, finish


def an_access_flow(app: App, *platforms: str, user: int = 62) -> Any:
    check, reward, finish = app.tasks["t:check"], app.tasks["t:reward"], app.tasks["t:finish"]
    checked = check.job(user=user)
    return finish.job(reward.map(list(platforms), access=checked.output).output)


@pytest.mark.parametrize("kind", [AccessState, StructState, ModelState])
def test_members_share_a_typed_state_and_the_flow_is_found(app: App, kind: Any) -> None:
    """G17, G21, G25, G28: the parent's state holds all results, and is found by its property."""
    access_tasks(app)
    access = app.flow("access", find={"user": 62}, state=kind(user=62))

    handle = access.enqueue(an_access_flow(app, "discord", "telegram"))
    assert handle.state == kind(user=62)
    assert not handle.ended
    drain(app)

    flow = app.find_flow("access", user=62)
    assert flow is not None
    assert flow.id == handle.id
    assert (flow.name, flow.find) == ("access", {"user": 62})
    assert flow.state == kind(
        user=62,
        access=True,
        rewards={"discord": "discord for 62: True", "telegram": "telegram for 62: True"},
    )
    assert flow.ended
    assert flow.bad == 0
    assert handle.result(timeout=0) == 2
    assert app.find_flow("access", user=63) is None


def test_a_state_is_made_with_its_defaults_or_is_a_dict(app: App) -> None:
    check, _, _ = access_tasks(app)

    typed = app.flow("typed", find={"user": 1}, state=AccessState).enqueue(check.job(user=62))
    loose = app.flow("loose", find={"user": 1}).enqueue(check.job(user=62))
    given = app.flow("given", find={"user": 1}, state={"a": {"b": 1}}).enqueue(check.job(user=1))
    assert typed.state == AccessState()
    assert loose.state == {}
    drain(app)

    assert typed.state == AccessState(access=True)
    assert loose.state == {"access": True}
    assert given.state == {"a": {"b": 1}, "access": False}
    assert given.state_as(dict[str, Any])["access"] is False
    assert typed.state_as(StructState) == StructState(access=True)


def test_jobs_that_need_nobody_are_joined_as_well(app: App) -> None:
    check, _, _ = access_tasks(app)

    handle = app.flow("pair").enqueue(check.job(user=1), group(check.job(user=2)))

    assert [node.task for node in handle.nodes] == ["t:check", "t:check"]
    assert drain(app) == ["check", "check"]
    assert handle.ended
    assert handle.result(timeout=0) is False


def test_a_single_job_has_a_state_too(app: App) -> None:
    @app.task(name="t:count")
    def count() -> int:
        state = current_job().flow.state
        state.merge(seen=True)
        return len(state.read())

    handle = app.flow("one").enqueue(count.job())
    drain(app)

    assert handle.result(timeout=0) == 1


def test_a_job_in_no_flow_says_so(app: App) -> None:
    said: list[str] = []

    @app.task(name="t:alone")
    def alone() -> None:
        try:
            current_job().flow.state.merge(a=1)
        except RuntimeError as error:
            said.append(str(error))

    alone.enqueue()
    drain(app)

    assert "is in no flow" in said[0]


def test_what_was_merged_before_a_crash_stays(app: App, clock: Clock) -> None:
    """Merged at once, not at the end; the attempt that lapsed cannot merge any more."""
    runs: list[Any] = []

    @app.task(name="t:slow")
    def slow() -> None:
        flow = current_job().flow
        runs.append(flow)
        flow.state.merge(tried={str(current_job().attempt): True})
        if current_job().attempt == 1:
            clock.advance(seconds=16)
            assert app.broker.recover() == 1
            with pytest.raises(StaleLease):
                flow.state.merge(tried={"late": True})

    handle = app.flow("slow").enqueue(slow.job())
    drain(app)

    assert handle.state == {"tried": {"1": True, "2": True}}
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"acces": True}, "AccessState has no acces; it has access, rewards, user"),
        ({"user": "ada"}, "state of flow access"),
        ({"rewards": {"discord": 5}}, "state of flow access"),
        ({"user": object()}, "state"),
    ],
)
def test_a_merge_must_fit_the_type_where_it_is_known(
    app: App, changes: dict[str, Any], says: str
) -> None:
    said: list[str] = []

    @app.task(name="t:wrong")
    def wrong() -> None:
        try:
            current_job().flow.state.merge(**changes)
        except Refused as error:
            said.append(str(error))

    handle = app.flow("access", state=AccessState).enqueue(wrong.job())
    drain(app)

    assert says in said[0]
    assert handle.state == AccessState()


def test_spawned_jobs_are_in_the_flow_and_see_its_state(app: App) -> None:
    """G24, G25, G26: n parameters make n child jobs; the next one starts when all are done."""
    _, reward, finish = access_tasks(app)

    @app.task(name="t:plan")
    def plan(platforms: list[str]) -> int:
        flow = current_job().flow
        flow.state.merge(platforms=platforms)
        jobs = reward.map(platforms, access=True)
        current_job().spawn(jobs, then=finish.job(jobs.output))
        return len(platforms)

    handle = app.flow("access", find={"user": 7}).enqueue(plan.job(["discord", "telegram"]))

    assert drain(app) == ["plan", "reward", "reward", "finish"]
    assert handle.ended
    assert set(handle.state["rewards"]) == {"discord", "telegram"}
    assert [node.task for node in handle.nodes].count("t:reward") == 1


def test_a_shared_queue_goes_on_by_the_flows_name_or_by_what_came_out(app: App) -> None:
    """G55: two flows through one queue diverge; so does one, by the handler's result."""

    @app.task(name="t:left")
    def left() -> None: ...

    @app.task(name="t:right")
    def right() -> None: ...

    @app.task(name="t:shared", queue="shared")
    def shared(number: int) -> int:
        forward = {"join": left, "leave": right}[current_job().flow.name]
        if number > 10:
            forward = right
        current_job().spawn(forward.job())
        return number

    for name, number, then in (("join", 1, "left"), ("leave", 1, "right"), ("join", 11, "right")):
        handle = app.flow(name).enqueue(shared.job(number))

        assert drain(app) == ["shared", then]
        assert handle.ended


def test_all_of_a_flow_is_fetched_with_its_children(app: App) -> None:
    """G22, G43, G50, G57, G58: ended, what succeeded last, children with results, what failed.

    They are in order, and one that is missing shifts nothing.
    """
    access_tasks(app)
    handle = app.flow("access", find={"user": 62}).enqueue(
        an_access_flow(app, "discord", "bad", "telegram"), on_failure="continue"
    )
    assert [job.state for job in handle.jobs] == [State.READY, *[State.WAITING] * 4]
    assert not handle.ended

    drain(app, limit=1)
    assert [node.task for node in handle.nodes if not node.jobs_left] == ["t:check"]
    drain(app)
    check, *rewards, finish = handle.jobs

    assert handle.ended
    assert handle.bad == 1
    assert (check.output, finish.output) == (True, 2)
    assert [job.output and job.output.split()[0] for job in rewards] == [
        "discord",
        None,
        "telegram",
    ]
    bad = rewards[1]
    assert bad.state is State.FAILED
    stored = app.broker.get(bad.id)
    assert stored is not None
    assert (stored.queue, stored.reason) == ("manage-reward:discord", "error")
    assert "no such platform" in (stored.error or "")

    app.broker.act("delete", [rewards[0].id])
    again = handle.jobs
    assert [job.id for job in again] == [check.id, *(job.id for job in rewards), finish.id]
    assert [job.state for job in again[1:4]] == [None, State.FAILED, State.SUCCEEDED]
    assert again[3].output == rewards[2].output


def test_the_names_of_guild_resolve(app: App) -> None:
    """G16, G20, G23: queue and stage, who holds a job, lookup by property, state by id."""
    access_tasks(app)
    handle = app.flow("access", find={"user": 62}).enqueue(an_access_flow(app, "discord"))
    drain(app, limit=1)

    [count] = [count for count in app.broker.count() if count.queue == "manage-reward:discord"]
    assert (count.ready, count.running) == (1, 0)
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    held = app.broker.get(job.id)
    assert held is not None
    assert (held.queue, held.worker) == ("manage-reward:discord", "worker-1")
    found = app.find_flow("access", user=62)
    assert found is not None
    assert found.id == handle.id
    assert app.flow_handle(handle.id).state == {"access": True}


def test_flows_are_found_newest_first(app: App, clock: Clock) -> None:
    check, _, _ = access_tasks(app)
    made: list[FlowHandle[Any, Any]] = []
    for number in range(4):
        find = {"user": 62, "number": number, "role": ["admin", number]}
        made.append(app.flow("access", find=find).enqueue(check.job(user=1)))
        clock.advance(seconds=1)

    assert [flow.id for flow in app.find_flows("access", user=62)] == [
        flow.id for flow in reversed(made)
    ]
    newest = app.find_flow("access", user="62", role="admin")
    assert newest is not None
    assert newest.id == made[3].id
    assert [flow.id for flow in app.find_flows("access", role=2)] == [made[2].id]
    assert list(app.find_flows("access", role=62)) == []


def test_properties_may_be_what_has_a_text(memory_app: App) -> None:
    check, _, _ = access_tasks(memory_app)
    user = UUID("0190a6c4-5e1f-7000-8000-00000a1b2000")

    handle = memory_app.flow("access", find={"user": user}).enqueue(check.job(user=1))

    found = memory_app.find_flow("access", user=user)
    assert found is not None
    assert (found.id, found.find) == (handle.id, {"user": str(user)})
    with pytest.raises(Refused, match="find"):
        memory_app.flow("access", find={"user": object()})
    with pytest.raises(Refused, match="find: user"):
        memory_app.flow("access", find={"user": {"id": 1}})


def test_a_flow_is_cancelled_and_retried_as_a_whole(app: App) -> None:
    access_tasks(app)
    handle = app.flow("access", find={"user": 62}).enqueue(an_access_flow(app, "discord"))
    drain(app, limit=1)

    assert handle.cancel("enough") == 2
    assert handle.ended
    assert handle.cancel() == 0
    with pytest.raises(JobCancelled):
        handle.result(timeout=0)
    assert handle.retry() == 2
    assert drain(app) == ["reward", "finish"]

    assert handle.result(timeout=0) == 1
    assert handle.retry() == 0


def test_a_flow_is_deleted_with_its_state_and_lookups(app: App) -> None:
    """G56: nothing of it is found any more, and who runs it writes nothing back."""
    access_tasks(app)
    access = app.flow("access", find={"user": 62})
    flow = an_access_flow(app, "discord")
    handle = access.enqueue(flow)
    drain(app, limit=1)

    assert handle.delete() == 3

    assert app.find_flow("access", user=62) is None
    with pytest.raises(ResultGone, match="not in the store"):
        _ = handle.state
    assert drain(app) == []
    access.enqueue(flow)
    assert drain(app) == []
    assert app.find_flow("access", user=62) is None


def test_a_member_of_a_deleted_flow_is_stale(app: App) -> None:
    said: list[str] = []

    @app.task(name="t:deletes")
    def deletes() -> None:
        flow = current_job().flow
        app.flow_handle(flow.id).delete()
        try:
            flow.state.merge(a=1)
        except StaleLease as error:
            said.append(str(error))

    app.flow("gone").enqueue(deletes.job())
    drain(app)

    assert len(said) == 1


def test_the_same_jobs_sent_again_are_one_flow(app: App) -> None:
    check, _, _ = access_tasks(app)
    access, job = app.flow("access", find={"user": 62}), check.job(user=62)

    first, second = access.enqueue(job), access.enqueue(job)

    assert first.id == second.id
    assert len(list(app.find_flows("access", user=62))) == 1
    assert drain(app) == ["check"]


def test_a_flow_is_stored_without_holding_up_the_event_loop(app: App) -> None:
    check, _, _ = access_tasks(app)

    handle = asyncio.run(app.flow("access", find={"user": 1}).enqueue_async(check.job(user=62)))
    drain(app)

    assert handle.state == {"access": True}
    assert asyncio.run(handle.result_async(timeout=1)) is True


def test_a_flow_is_committed_with_the_callers_data(sqlite_broker: Any) -> None:
    app = App(broker=sqlite_broker)
    access_tasks(app)
    access = app.flow("access", find={"user": 62})
    with closing(sqlite3.connect(sqlite_broker.store.path)) as connection:
        access.enqueue(an_access_flow(app, "discord"), connection=connection)
        assert app.find_flow("access", user=62) is None
        connection.rollback()
        assert app.find_flow("access", user=62) is None
        access.enqueue(an_access_flow(app, "discord"), connection=connection)
        connection.commit()

    assert drain(app) == ["check", "reward", "finish"]
    found = app.find_flow("access", user=62)
    assert found is not None
    assert found.ended


def test_what_cannot_be_a_named_flow_is_refused(memory_app: App) -> None:
    check, reward, _ = access_tasks(memory_app)

    @dataclass
    class Needs:
        user: int

    with pytest.raises(Refused, match="flow"):
        memory_app.flow("")
    with pytest.raises(Refused, match=r"state=Needs\(...\)"):
        memory_app.flow("needs", state=Needs)
    with pytest.raises(Refused, match="one JSON object"):
        memory_app.flow("number", state=5)
    memory_app.flow("access", state=AccessState)
    with pytest.raises(Refused, match="has a state of the type"):
        memory_app.flow("access", state=StructState)
    with pytest.raises(Refused, match="no job in it"):
        memory_app.flow("empty").enqueue(reward.map([], access=True))
    with pytest.raises(Refused, match="unique"):
        memory_app.flow("unique").enqueue(check.options(unique="one").job(user=1))


def test_the_testing_kit_runs_named_flows() -> None:
    app = App("memory:")
    access_tasks(app)

    with app.testing() as t:
        handle = app.flow("access", find={"user": 62}).enqueue(an_access_flow(app, "discord"))
        t.drain()

        assert handle.result() == 1
