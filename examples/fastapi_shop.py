"""FastAPI: the job is committed with the request's session, on the request's own event loop.

python examples/fastapi_shop.py
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from penstock import App
from penstock.integrations.fastapi import lifespan
from penstock.testing.postgres import Server


def make_api(url: str) -> FastAPI:
    """The application; its jobs are in the database of its orders."""
    jobs = App(url)
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    # worker=True runs the jobs in this process: for development. Else: penstock worker shop:jobs
    api = FastAPI(lifespan=lifespan(jobs, worker=True))

    @jobs.task(name="shop:confirm")
    def confirm(order: int) -> str:
        return f"order {order} is confirmed"

    async def session() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    @api.post("/orders")
    async def place_order(
        customer: str, session: Annotated[AsyncSession, Depends(session, scope="function")]
    ) -> dict[str, str]:
        statement = text("insert into orders (customer) values (:customer) returning id")
        order = (await session.execute(statement, {"customer": customer})).scalar_one()
        handle = await confirm.options(connection=session).enqueue_async(order)
        if customer == "mallory":
            raise HTTPException(403, "not from you")
        return {"job": handle.id}

    @api.get("/jobs/{id}")
    async def wait_for(id: str) -> str:
        return await jobs.handle(id).result_async(timeout=10)

    api.state.engine = engine
    return api


async def story(url: str) -> None:
    """Two customers, one of whom is refused: no order, and no job."""
    api = make_api(url)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(api), base_url="http://shop", timeout=30
        ) as client,
    ):
        async with api.state.engine.begin() as connection:
            await connection.execute(text("create table orders (id serial, customer text)"))
        placed = await client.post("/orders", params={"customer": "ada"})
        refused = await client.post("/orders", params={"customer": "mallory"})
        print(placed.status_code, refused.status_code)
        print((await client.get(f"/jobs/{placed.json()['job']}")).json())
        async with api.state.engine.begin() as connection:
            orders = await connection.execute(text("select count(*) from orders"))
            stored = await connection.execute(text("select count(*) from penstock.sent"))
            print(f"{orders.scalar_one()} order, {stored.scalar_one()} job")
    await api.state.engine.dispose()


if __name__ == "__main__":
    with Server() as server:
        asyncio.run(story(server.url()))
