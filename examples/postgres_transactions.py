"""Jobs and data that are committed together on PostgreSQL, with whatever the data is written with.

    python examples/postgres_transactions.py

Going in: `options(connection=...)` takes connections of psycopg, SQLAlchemy and asyncpg, plain and
asynchronous. Coming out: `current_job().transaction()` commits what a task writes with its end.
"""

import asyncio

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from penstock import App, current_job
from penstock.testing.postgres import Server

app = App("memory:")
INSERT = "insert into orders (customer) values ({}) returning id"


@app.task
def invoice(order: int) -> None:
    """Write the invoice and end, in one transaction."""
    with current_job().transaction() as connection:
        connection.execute("insert into invoices (order_id) values (%s)", (order,))


def place_order(connection: psycopg.Connection, customer: str) -> None:
    """One transaction of the shop's: the order and the job that will invoice it."""
    with connection.transaction():
        row = connection.execute(INSERT.format("%s"), (customer,)).fetchone()
        assert row is not None
        invoice.options(connection=connection).enqueue(row[0])
        if customer == "mallory":
            raise PermissionError("not from you")


async def place_order_async(session: AsyncSession, customer: str) -> None:
    """The same on the caller's own event loop: no thread, no other connection."""
    async with session.begin():
        row = await session.execute(text(INSERT.format(":customer")), {"customer": customer})
        await invoice.options(connection=session).enqueue_async(row.scalar_one())


async def with_sqlalchemy(url: str) -> None:
    """An AsyncSession, here over asyncpg."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with AsyncSession(engine) as session:
        await place_order_async(session, "grace")
    await engine.dispose()


def main() -> None:
    """Orders that are accepted and refused; a worker that dies between its work and its word."""
    with (
        Server() as server,
        app.testing(url=server.url()) as t,
        psycopg.connect(server.url(), autocommit=True) as shop,
    ):
        shop.execute("create table orders (id serial primary key, customer text)")
        shop.execute("create table invoices (order_id integer)")
        for customer in ("ada", "mallory", "bob"):
            try:
                place_order(shop, customer)
            except PermissionError as refusal:
                print(f"{customer}: {refusal}")
        asyncio.run(with_sqlalchemy(server.url()))
        orders = shop.execute("select customer from orders order by id").fetchall()
        print(f"{len(t.jobs(invoice))} jobs for {', '.join(name for (name,) in orders)}")

        with t.crash_at("settle"):  # the function has returned, nothing is committed yet
            t.drain()
        invoices = shop.execute("select count(*), count(distinct order_id) from invoices")
        print("invoices, and orders that have one:", invoices.fetchone())


if __name__ == "__main__":
    main()
