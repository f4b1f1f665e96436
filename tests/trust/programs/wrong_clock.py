"""The first enqueue of an app, in every way there is, on a machine whose clock is wrong.

Called with the store's URL; says for each way what became of it, as JSON: the ids of its jobs, or
the error. Whoever calls it has set the clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import App, group
from penstock.broker.filter import Filter

url = sys.argv[1]
DELAY = {"delay": 60}
EXPIRES = {"expires": 60}
NEXT_YEAR = datetime(2040, 1, 1, tzinfo=UTC)

WAYS: dict[str, Callable[[Any], Iterable[Any]]] = {}


def way(function: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterable[Any]]:
    WAYS[function.__name__] = function
    return function


@way
def plain(send: Any) -> Iterable[Any]:
    return [send.enqueue(1)]


@way
def delay(send: Any) -> Iterable[Any]:
    return [send.options(**DELAY).enqueue(1)]


@way
def expires(send: Any) -> Iterable[Any]:
    return [send.options(**EXPIRES).enqueue(1)]


@way
def at(send: Any) -> Iterable[Any]:
    return [send.options(at=NEXT_YEAR, **EXPIRES).enqueue(1)]


@way
def unique(send: Any) -> Iterable[Any]:
    return [send.options(unique="wrong clock", unique_for=60, unique_until="time").enqueue(1)]


@way
def many(send: Any) -> Iterable[Any]:
    before = {job.id for job in send.app.broker.find(Filter()).jobs}
    app = App(url)
    app.task(name="send")(send.function).options(**DELAY).enqueue_many([(1,), (2,)])
    return [job for job in app.broker.find(Filter()).jobs if job.id not in before]


@way
def asynchronous_delay(send: Any) -> Iterable[Any]:
    return [asyncio.run(send.options(**DELAY).enqueue_async(1))]


@way
def value_delay(send: Any) -> Iterable[Any]:
    job = send.options(**DELAY).job(1)
    handles = [job.enqueue(), *send.app.enqueue([job])]
    assert {handle.id for handle in handles} == {job.id}
    return handles[:1]


@way
def value_expires(send: Any) -> Iterable[Any]:
    return send.app.enqueue([send.options(**EXPIRES).job(1), send.job(2)])


@way
def value_at(send: Any) -> Iterable[Any]:
    return [send.options(at=NEXT_YEAR, **EXPIRES).job(1).enqueue()]


@way
def value_asynchronous(send: Any) -> Iterable[Any]:
    return asyncio.run(send.app.enqueue_async([send.options(**DELAY).job(1)]))


@way
def mapped(send: Any) -> Iterable[Any]:
    jobs = send.map([1, 2, 3])
    handles = jobs.enqueue()
    assert [handle.id for handle in jobs.enqueue()] == [handle.id for handle in handles]
    return handles


@way
def mapped_delay(send: Any) -> Iterable[Any]:
    return send.options(**DELAY).map([1, 2, 3]).enqueue()


@way
def grouped(send: Any) -> Iterable[Any]:
    return group(send.job(1), send.job(2)).enqueue()


@way
def flow(send: Any) -> Iterable[Any]:
    first = send.options(**DELAY).job(1)
    both = send.map([2, 3])
    last = send.job([first.output, both.output])
    handle = last.enqueue()
    stored = send.app.flow_handle(handle.id)
    last_node = next(node for node in stored.nodes if node.id == handle.id)
    assert set(last_node.needs) == {first.id, both.id}, "its needs are not those that were stored"
    body = json.loads(send.app.broker.get(handle.id).body)
    filled = {node for _, node, _ in body["flow"]["fill"]}
    assert filled == {first.id, both.id}, "it is to be filled with what nobody stored"
    assert last.enqueue().id == handle.id
    return [send.app.handle(job.id) for job in stored.jobs]


@way
def named_flow(send: Any) -> Iterable[Any]:
    stored = send.app.flow("wrong-clock").enqueue(send.job(send.job(1).output))
    return [send.app.handle(job.id) for job in stored.jobs]


@way
def by_hand(send: Any) -> Iterable[Any]:
    left = send.app.clock.now() + 60 - send.app.broker.clock.now()
    return [send.options(delay=left).enqueue(1)]


@way
def schedule_run_now(send: Any) -> Iterable[Any]:
    send.app.schedules.put("wrong-clock", send, every=3600, args=[1])
    app = App(url)
    return [app.schedules.run_now("wrong-clock")]


@way
def joined_psycopg(send: Any) -> Iterable[Any]:
    with psycopg.connect(url) as connection:
        handles = [send.options(connection=connection, **DELAY).enqueue(1)]
        handles += send.app.enqueue([send.options(**EXPIRES).job(2)], connection=connection)
    return handles


@way
def joined_value(send: Any) -> Iterable[Any]:
    job = send.options(**EXPIRES).job(2)
    with psycopg.connect(url) as connection:
        return send.app.enqueue([job], connection=connection)


@way
def joined_sqlalchemy(send: Any) -> Iterable[Any]:
    with Session(create_engine(url.replace("://", "+psycopg://", 1))) as session:
        handle = send.options(connection=session, **DELAY).enqueue(1)
        session.commit()
    return [handle]


@way
def joined_asyncpg(send: Any) -> Iterable[Any]:
    async def joining() -> Any:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            handle = await send.options(connection=connection, **EXPIRES).enqueue_async(1)
        await connection.close()
        return handle

    return [asyncio.run(joining())]


@way
def joined_asyncpg_value(send: Any) -> Iterable[Any]:
    job = send.options(**DELAY).job(1)

    async def joining() -> Any:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            handles = await send.app.enqueue_async([job], connection=connection)
        await connection.close()
        return handles

    return asyncio.run(joining())


@way
def joined_sqlalchemy_async(send: Any) -> Iterable[Any]:
    async def joining() -> Any:
        engine = create_async_engine(url.replace("://", "+asyncpg://", 1))
        async with AsyncSession(engine) as session:
            handle = await send.options(connection=session, **DELAY).enqueue_async(1)
            await session.commit()
        await engine.dispose()
        return handle

    return [asyncio.run(joining())]


def first_of(app: App, function: Callable[[Any], Iterable[Any]]) -> dict[str, Any]:
    @app.task(name="send")
    def send(n: Any) -> int:
        return 1

    try:
        return {"ids": [each.id for each in function(send)]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        app.close()


if __name__ == "__main__":
    print(json.dumps({name: first_of(App(url), function) for name, function in WAYS.items()}))
