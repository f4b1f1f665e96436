"""The shop's API."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.orm import Session

from penstock.integrations.fastapi import lifespan
from shop.database import Base, Order, engine
from shop.jobs import app, confirm


@asynccontextmanager
async def opened(api: FastAPI) -> AsyncIterator[None]:
    """Before the first request: the shop's tables, and the store of the jobs."""
    Base.metadata.create_all(engine)
    async with lifespan(app)(api):
        yield


api = FastAPI(lifespan=opened)


def session_of_request() -> Iterator[Session]:
    """One transaction for each request: it commits at the end, or rolls back."""
    with Session(engine) as session, session.begin():
        yield session


# scope="function": the commit comes before the answer, not after it.
Transaction = Annotated[Session, Depends(session_of_request, scope="function")]


@api.post("/orders", status_code=201)
def place_order(customer: str, session: Transaction) -> dict[str, str]:
    """Store an order and the job that confirms it, or neither."""
    order = Order(customer=customer)
    session.add(order)
    session.flush()  # the order has its number now
    handle = confirm.options(connection=session).enqueue(order.id)
    if customer == "mallory":
        raise HTTPException(403, "not from you")
    return {"order": str(order.id), "job": handle.id}


@api.get("/jobs/{id}")
async def wait_for(id: str) -> str:
    """What became of a job, as soon as it has ended."""
    return await app.handle(id).result_async(timeout=10)
