"""Calls that must not type-check: each ignore below names the error that it expects.

The type checker runs with `reportUnnecessaryTypeIgnoreComment`: a line that is accepted after all
is an error, and so is another error than the one named.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import SparkSession

from penstock import App, Handle, Job, Task, chain, current_job, group, use, wait_for
from penstock.brokers.postgres.statements import sql as postgres_sql
from penstock.brokers.sqlite.statements import sql

app = App("memory:")


@dataclass
class Order:
    number: int


class Client: ...


def make_client() -> Client:
    return Client()


@app.task(queue="mail")
def send(to: str, order: Order, client: Client = use(make_client)) -> str:
    return to


@app.task
async def fetch(url: str) -> bytes:
    return b""


@app.declare("media:resize")
def resize(path: str) -> int: ...


order = Order(7)

# The wrong arguments
send.enqueue()  # pyright: ignore[reportCallIssue]
send.enqueue("ada")  # pyright: ignore[reportCallIssue]
send.enqueue(1, order)  # pyright: ignore[reportArgumentType]
send.enqueue("ada", "order")  # pyright: ignore[reportArgumentType]
send.enqueue("ada", order, cc="bob")  # pyright: ignore[reportCallIssue]
send.enqueue("ada", order, make_client)  # pyright: ignore[reportArgumentType]
send.job("ada", orders=order)  # pyright: ignore[reportCallIssue]
send("ada")  # pyright: ignore[reportCallIssue]
fetch.enqueue(1)  # pyright: ignore[reportArgumentType]
resize.enqueue(path=1)  # pyright: ignore[reportArgumentType]
send.options(delay=1).enqueue("ada")  # pyright: ignore[reportCallIssue]
send.options(delay=1).job(1, order)  # pyright: ignore[reportArgumentType]
send.enqueue_many([1, 2])  # pyright: ignore[reportArgumentType]


async def waiting() -> None:
    await send.enqueue_async("ada")  # pyright: ignore[reportCallIssue]
    await send.options(key="a").enqueue_async("ada", 1)  # pyright: ignore[reportArgumentType]


# The wrong options
send.options(delay="soon")  # pyright: ignore[reportArgumentType]
send.options(at=5)  # pyright: ignore[reportArgumentType]
send.options(priority="high")  # pyright: ignore[reportArgumentType]
send.options(tags={"a": 1})  # pyright: ignore[reportArgumentType]
send.options(unique_until="never")  # pyright: ignore[reportArgumentType]
send.options(on_error="forget")  # pyright: ignore[reportArgumentType]
send.options(retry=3)  # pyright: ignore[reportArgumentType]
send.options(countdown=3)  # pyright: ignore[reportCallIssue]
send.options(60)  # pyright: ignore[reportCallIssue]
app.task(que="mail")  # pyright: ignore[reportCallIssue]
app.task(mode="fork")  # pyright: ignore[reportArgumentType]
app.task(queue=None)  # pyright: ignore[reportArgumentType]
app.task(on_error=None)  # pyright: ignore[reportArgumentType]
app.task(spark=True, que="mail")  # pyright: ignore[reportCallIssue]
app.task(declared=True)  # pyright: ignore[reportCallIssue]
app.declare("media:resize", retry=None)  # pyright: ignore[reportCallIssue]
app.declare("media:resize", priority="high")  # pyright: ignore[reportArgumentType]
app.schedule("@daily", zones="UTC")  # pyright: ignore[reportCallIssue]
app.schedule("@daily", missed="some")  # pyright: ignore[reportArgumentType]
app.schedules.put("daily", send, every="1h")  # pyright: ignore[reportArgumentType]
app.hook("started")  # pyright: ignore[reportArgumentType]
app.enqueue(["ada"])  # pyright: ignore[reportArgumentType]

# The wrong results
number: int = send("ada", order)  # pyright: ignore[reportAssignmentType]
wrong: Handle[int] = send.enqueue("ada", order)  # pyright: ignore[reportAssignmentType]
total: int = send.enqueue("ada", order).result()  # pyright: ignore[reportAssignmentType]
job: Job[str] = fetch.job("x")  # pyright: ignore[reportAssignmentType]
not_awaited: bytes = fetch("x")  # pyright: ignore[reportAssignmentType]
other: Task[[int], str] = send  # pyright: ignore[reportAssignmentType]


# The wrong resource
@app.task
def use_it(client: str = use(make_client)) -> None: ...  # pyright: ignore[reportArgumentType]


@app.task
def count(texts: list[str], least: int = 0) -> int:
    return len(texts)


# The wrong hand-over
send.job(resize.job("x").output, order)  # pyright: ignore[reportArgumentType]
resize.job(fetch.job("x").output)  # pyright: ignore[reportArgumentType]
count.job(send.job("ada", order).output)  # pyright: ignore[reportArgumentType]
count.job(resize.map(["a"]).output)  # pyright: ignore[reportArgumentType]
resize.map([1, 2])  # pyright: ignore[reportArgumentType]
send.map(["ada"])  # pyright: ignore[reportCallIssue]
send.map(["ada"], 3)  # pyright: ignore[reportArgumentType]
send.map(["ada"], orders=order)  # pyright: ignore[reportCallIssue]
group(resize.map(["a"]))  # pyright: ignore[reportArgumentType]
count.options(on_failure="retry")  # pyright: ignore[reportArgumentType]
count.job([]).enqueue(on_failure="ignore")  # pyright: ignore[reportArgumentType]
handed: str = resize.job("a").output  # pyright: ignore[reportAssignmentType]
mapped: list[str] = resize.map(["a"]).output  # pyright: ignore[reportAssignmentType]
chain(resize.job("a"), count)  # pyright: ignore[reportArgumentType]
current_job().spawn("a")  # pyright: ignore[reportArgumentType]
current_job().spawn([], then=count)  # pyright: ignore[reportArgumentType]
count.job(wait_for("texts", returns=int).output)  # pyright: ignore[reportArgumentType]
wait_for("texts", timeout="1h")  # pyright: ignore[reportArgumentType]


@app.batch_task(size=100)
def push(orders: list[Order]) -> list[str | Exception]:
    return []


# The wrong batch
push.enqueue([order])  # pyright: ignore[reportArgumentType]
push.enqueue("ada")  # pyright: ignore[reportArgumentType]
push(order)  # pyright: ignore[reportArgumentType]
pushed: Handle[int] = push.enqueue(order)  # pyright: ignore[reportAssignmentType]
app.batch_task(size="many")  # pyright: ignore[reportArgumentType]
app.batch_task(linger=1)  # pyright: ignore[reportCallIssue]
app.batch_task(size=3, mode="thread")  # pyright: ignore[reportCallIssue]
app.batch_task(size=3, linger="1s")  # pyright: ignore[reportArgumentType]


# A misspelt statement
sql.clame = ""  # pyright: ignore[reportAttributeAccessIssue]
postgres_sql.share_mark = ""  # pyright: ignore[reportAttributeAccessIssue]


# The wrong flow
app.flow("access", find=62)  # pyright: ignore[reportArgumentType]
outcome: str = app.flow("access").enqueue(resize.job("a")).result()  # pyright: ignore[reportAssignmentType]
current_job().flow.state.merge({"a": 1})  # pyright: ignore[reportCallIssue]


@app.task(spark=True)
def daily(spark: SparkSession, day: date) -> int:
    return day.day


# A Spark task called with its session, or without its arguments
daily.enqueue()  # pyright: ignore[reportCallIssue]
daily.enqueue("2026-01-01")  # pyright: ignore[reportArgumentType]
daily.enqueue(SparkSession.builder.getOrCreate(), date(2026, 1, 1))  # pyright: ignore[reportCallIssue]
daily.backfill("2026-01-01")  # pyright: ignore[reportCallIssue]
