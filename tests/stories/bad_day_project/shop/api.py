"""The shop's API: an order and its jobs are committed together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI
from sqlalchemy.orm import Session

from penstock.integrations.fastapi import lifespan
from shop.database import Base, Order, engine
from shop.jobs import app, charge, receipt, reserve, ship


@asynccontextmanager
async def opened(api: FastAPI) -> AsyncIterator[None]:
    """Before the first request: the shop's tables, and the store of the jobs."""
    Base.metadata.create_all(engine)
    async with lifespan(app)(api):
        yield


api = FastAPI(lifespan=opened)


def session_of_request() -> Iterator[Session]:
    """One transaction for each request."""
    with Session(engine) as session, session.begin():
        yield session


Transaction = Annotated[Session, Depends(session_of_request, scope="function")]


@api.post("/orders", status_code=201)
def place_order(customer: str, session: Transaction) -> dict[str, str]:
    """Store an order with everything that follows from it, or nothing."""
    order = Order(customer=customer)
    session.add(order)
    session.flush()
    paid = charge.options(connection=session).enqueue(order.id, "19.90")
    sent = receipt.options(connection=session).enqueue(order.id)
    shipped = ship.job(reserve.job(order.id).output)
    app.enqueue([shipped], connection=session)
    return {"charge": paid.id, "receipt": sent.id, "ship": shipped.id}
