"""Calls that must type-check, and what their results are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, assert_type

from pyspark.sql import SparkSession

from penstock import (
    App,
    Batch,
    FlowHandle,
    Group,
    Handle,
    Job,
    Jobs,
    NamedFlow,
    Outcome,
    Progress,
    Repeat,
    Retry,
    State,
    Task,
    Why,
    chain,
    current_job,
    current_jobs,
    group,
    use,
    wait_for,
)

app = App("memory:")


@dataclass
class Order:
    number: int


class Client:
    def send(self, to: str) -> None: ...


def make_client() -> Client:
    return Client()


@contextmanager
def managed_client() -> Generator[Client]:
    yield Client()


def yielded_client() -> Generator[Client]:
    yield Client()


async def awaited_client() -> Client:
    return Client()


@asynccontextmanager
async def managed_async_client() -> AsyncGenerator[Client]:
    yield Client()


@app.task
def bare(n: int) -> str:
    return str(n)


@app.task(
    queue="mail",
    priority=5,
    retry=Retry(limit=2, delay=300, on=(IOError,)),
    timeout=timedelta(minutes=1),
    mode="process",
    version=2,
    aliases=("mail:post",),
    runs_on={"gpu"},
    search=("order.number",),
    secret=("to",),
    keep_messages=True,
    keep=3600,
    on_success="delete",
    on_error=Repeat(limit=2),
    on_timeout="keep",
    tags={"team": "shop"},
    name="mail:send",
    at_most_once=False,
)
def send(to: str, order: Order, client: Client = use(make_client)) -> str:
    client.send(to)
    return to


@app.task
async def fetch(url: str, *, client: Client = use(awaited_client)) -> bytes:
    client.send(url)
    return b""


@app.task(queue="web")
async def fetch_later(
    url: str,
    a: Client = use(managed_client),
    b: Client = use(yielded_client),
    c: Client = use(managed_async_client),
) -> list[int]:
    return [len(url)]


@app.declare(
    "media:resize",
    queue="media",
    priority=3,
    version=2,
    runs_on=("gpu",),
    search=("path",),
    secret=(),
    detached=True,
    tags={"team": "media"},
)
def resize(path: str, width: int = 100) -> Order: ...


def calls(order: Order) -> None:
    assert_type(bare(1), str)
    assert_type(bare.enqueue(1), Handle[str])
    assert_type(bare.job(n=1), Job[str])
    assert_type(bare.job(1).enqueue(), Handle[str])
    assert_type(send("ada", order), str)
    assert_type(send("ada", order, Client()), str)
    assert_type(send.enqueue("ada", order=order).result(timeout=10), str)
    assert_type(resize.enqueue("a.png", width=3), Handle[Order])
    assert_type(bare.enqueue_many([(1,), {"n": 2}], id="import-7"), Batch)
    assert_type(app.enqueue([send.job("ada", order), bare.job(1)]), list[Handle[Any]])


def options(order: Order, connection: object) -> None:
    prepared = send.options(
        delay=60,
        at=None,
        priority=5,
        key="ada",
        unique="welcome-ada",
        unique_for=timedelta(hours=1),
        unique_until="started",
        queue=None,
        headers={"trace": "1"},
        on_success="keep",
        on_error=Repeat(),
        on_timeout=None,
        tags={"tenant": "a"},
        expires=timedelta(days=1),
        timeout=30,
        retry=Retry(limit=None),
        connection=connection,
    )
    assert_type(prepared.enqueue("ada", order), Handle[str])
    assert_type(prepared.job("ada", order), Job[str])
    assert_type(prepared.enqueue_many([("ada", order)]), Batch)
    assert_type(send.options(at=datetime.now(UTC)).enqueue("ada", order=order), Handle[str])


def handles() -> None:
    handle = bare.enqueue(1)
    assert_type(handle.id, str)
    assert_type(handle.stored, bool)
    assert_type(handle.state(), State | None)
    assert_type(handle.cancel(), bool)
    assert_type(handle.why(), Why)
    assert_type(handle.progress(), Progress | None)
    assert_type(app.handle("x").result(), Any)


async def waiting(order: Order) -> None:
    assert_type(await fetch("x"), bytes)
    assert_type(fetch.enqueue("x"), Handle[bytes])
    assert_type(await fetch.enqueue_async("x"), Handle[bytes])
    assert_type(fetch_later.job("x"), Job[list[int]])
    assert_type(await (await send.enqueue_async("ada", order)).result_async(timeout=1), str)
    assert_type(await send.options(delay=1).enqueue_async("ada", order), Handle[str])
    await asyncio.gather(fetch("a"), fetch("b"))


def any_task(task: Task[[int], str]) -> Handle[str]:
    return task.enqueue(3)


any_task(bare)


@app.hook("claimed")
def claimed(job: Job[Any]) -> None: ...


@app.hook("failed")
def failed(job: Job[Any], outcome: Outcome) -> None: ...


@app.on_enqueue
def add_trace(headers: dict[str, str], task: Task[..., Any]) -> None:
    headers["task"] = task.name


def inside() -> None:
    job = current_job()
    assert_type(job.attempt, int)
    assert_type(job.step("one", make_client), Client)
    assert_type(job.step("two", resize, "a.png", width=3), Order)
    assert_type(job.last_snapshot(Order), Order | None)
    job.progress(0.5, "half")
    job.event("seen", what=3)
    job.log.info("line %s", 3)
    with job.transaction() as connection:
        connection.execute("insert into paid values (1)")


async def inside_async() -> None:
    assert_type(await current_job().step("one", awaited_client), Client)


@app.schedule("0 * * * *", zone="Europe/Paris", missed="all", window=timedelta(hours=6))
@app.task
def hourly(slot: datetime, n: int = 0) -> int:
    return n


@app.task
@app.schedule(every=timedelta(minutes=5), overlap="skip", kwargs={"n": 7})
async def sometimes(n: int) -> str:
    return str(n)


assert_type(hourly.enqueue(datetime.now(UTC)), Handle[int])
assert_type(sometimes.enqueue(7), Handle[str])
assert_type(app.schedules.next("hourly", 3), list[datetime])
app.schedules.put("once", sometimes.options(queue="slow"), at=datetime.now(UTC), args=(3,))


@app.task
def reward(platform: str, access: bool, note: str = "") -> int:
    return len(platform)


@app.task
def check(user: int) -> bool:
    return user > 0


@app.task
async def finish(rewards: list[int], client: Client = use(make_client)) -> str:
    return str(rewards)


def flows(connection: object) -> None:
    access = check.job(user=62)
    assert_type(access.output, bool)
    rewards = reward.map(["discord", "telegram"], access=access.output)
    assert_type(rewards, Jobs[int])
    assert_type(rewards.output, list[int])
    assert_type(rewards.enqueue(), list[Handle[int]])
    assert_type(finish.job(rewards.output).enqueue(), Handle[str])
    assert_type(
        finish.job([bare_length.job("a").output]).enqueue(on_failure="continue"), Handle[str]
    )
    assert_type(reward.options(priority=3).map(["a"], access.output, note="x"), Jobs[int])
    assert_type(finish.options(on_failure="continue").enqueue(rewards.output), Handle[str])
    assert_type(fetch.map(["a"]), Jobs[bytes])
    assert_type(group(check.job(1), check.job(2)), Group[bool])
    assert_type(group(check.job(1), check.job(2)).output, list[bool])
    assert_type(chain(rewards, finish), Job[str])
    assert_type(chain(bare_length.job("a"), bare, bare_length, bare), Job[str])
    assert_type(chain(group(bare_length.job("a")), finish.options(priority=5)), Job[str])
    app.enqueue([rewards, access, finish.job([])], connection=connection, on_failure="cancel")


@app.task
def bare_length(text: str) -> int:
    return len(text)


def spawning() -> None:
    work = reward.map(["discord"], access=True)
    current_job().spawn(work, then=finish.job(work.output))
    current_job().spawn([check.job(1), work])
    current_job().spawn(check.job(1))
    current_job().spawn(group(check.job(1), check.job(2)), then=bare.job(1))


def signals() -> None:
    assert_type(wait_for("approve"), Job[Any])
    approved = wait_for("approve", timeout=timedelta(days=1), returns=bool)
    assert_type(approved, Job[bool])
    assert_type(reward.map(["discord"], access=approved.output), Jobs[int])
    assert_type(app.signal("approve", value=Order(7), author="ada", reason="fine"), int)
    app.enqueue([approved, wait_for("other", 60)])
    assert_type(chain(wait_for("n", returns=int), bare), Job[str])


@app.batch_task(size=100, linger=0.2)
def push(orders: list[Order], client: Client = use(make_client)) -> list[str | Exception]:
    return [str(order.number) for order in orders]


@app.batch_task(size=100, by_key=True, linger=timedelta(seconds=1), retry=Retry(limit=1), keep=60)
def push_some(orders: list[Order]) -> list[str | Exception] | None:
    return None


@app.batch_task(size=100)
def push_all(orders: list[Order]) -> None: ...


@app.batch_task(size=100)
async def push_async(orders: list[Order]) -> list[int]:
    return [order.number for order in orders]


def batches(order: Order) -> None:
    assert_type(push.enqueue(order), Handle[str])
    assert_type(push.job(order), Job[str])
    assert_type(push.options(key="ada").enqueue(order).result(), str)
    assert_type(push.map([order]).output, list[str])
    assert_type(push_some.enqueue(order), Handle[str | None])
    assert_type(push_all.enqueue(order), Handle[None])
    assert_type(push_async.enqueue(order), Handle[int])
    push([order])
    assert_type([each.id for each in current_jobs()], list[str])


@dataclass
class AccessState:
    user: int = 0


def named_flows(connection: object) -> None:
    access = app.flow("access", find={"user": 62, "role": ["a", 1]}, state=AccessState)
    assert_type(access, NamedFlow[AccessState])
    assert_type(app.flow("access", state=AccessState(62)), NamedFlow[AccessState])
    assert_type(app.flow("other"), NamedFlow[dict[str, Any]])
    handle = access.enqueue(bare_length.job("a"), on_failure="continue", connection=connection)
    assert_type(handle, FlowHandle[int, AccessState])
    assert_type(handle.result(timeout=1), int)
    assert_type(handle.state, AccessState)
    assert_type(handle.state_as(Order), Order)
    assert_type(
        access.enqueue(fetch.map(["a"]), bare_length.job("b")), FlowHandle[Any, AccessState]
    )
    assert_type(app.find_flow("access", user=62), FlowHandle[Any, Any] | None)
    assert_type(current_job().flow.state.read(AccessState), AccessState)
    current_job().flow.state.merge(user=62)


# A Spark task: its session is no argument
@app.task(spark=True, timeout=60)
def daily(spark: SparkSession, day: date, full: bool = False) -> int:
    return day.day


@app.task(spark=SparkSession.builder.getOrCreate)
def weekly(spark: SparkSession, week: int) -> None: ...


assert_type(daily(date(2026, 1, 1)), int)
assert_type(daily.enqueue(date(2026, 1, 1), full=True), Handle[int])
assert_type(weekly.job(7), Job[None])
assert_type(daily.map([date(2026, 1, 1)]), Jobs[int])
assert_type(len(daily.backfill("2026-01-01", date(2026, 1, 31), max_running=None)), int)
