"""Jobs and data that are committed together, or not at all.

    python examples/transactional.py

The store is in the shop's own database. Enqueue: `options(connection=...)` writes the job in the
caller's transaction, with sqlite3 or SQLAlchemy. Run: `current_job().transaction()` commits what
the task writes together with the job's success: a crash never leaves one without the other.
"""

import sqlite3
import tempfile
from pathlib import Path

import sqlalchemy

from penstock import App, State, current_job

app = App("memory:")


@app.task
def invoice(order: int) -> None:
    """Write the invoice and end, in one transaction."""
    with current_job().transaction() as connection:
        connection.execute("insert into invoices (order_id) values (?)", (order,))


def place_order(connection: sqlite3.Connection, customer: str) -> None:
    """One transaction of the shop's: the order and the job that will invoice it."""
    with connection:
        row = connection.execute("insert into orders (customer) values (?)", (customer,))
        invoice.options(connection=connection).enqueue(row.lastrowid or 0)
        if customer == "mallory":
            raise PermissionError("not from you")


def place_order_with_sqlalchemy(engine: sqlalchemy.Engine, customer: str) -> None:
    """The same, with SQLAlchemy; a Session will do as well."""
    with engine.begin() as connection:
        statement = sqlalchemy.text("insert into orders (customer) values (:customer)")
        row = connection.execute(statement, {"customer": customer})
        invoice.options(connection=connection).enqueue(row.lastrowid)
        if customer == "mallory":
            raise PermissionError("not from you")


def main() -> None:
    """Orders that are accepted and refused; a worker that dies before it settles."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shop.db"
        with app.testing(url=f"sqlite:///{file}") as t:
            shop = sqlite3.connect(file)
            engine = sqlalchemy.create_engine(f"sqlite:///{file}")
            shop.execute("create table orders (id integer primary key, customer text)")
            shop.execute("create table invoices (order_id integer)")

            for customer in ("ada", "mallory", "bob"):
                try:
                    place_order(shop, customer)
                except PermissionError as refusal:
                    print(f"{customer}: {refusal}")
                try:
                    place_order_with_sqlalchemy(engine, customer)
                except PermissionError as refusal:
                    print(f"{customer}, once more: {refusal}")
            [orders] = shop.execute("select count(*) from orders").fetchone()
            print(f"{orders} orders, {len(t.jobs(invoice))} jobs")
            assert orders == len(t.jobs(invoice)) == 4

            with t.crash_at("settle"):  # the function has returned, nothing is committed yet
                t.drain()
            invoices = shop.execute("select order_id from invoices order by 1").fetchall()
            print(
                f"one worker died, and the invoices are for the orders {[n for (n,) in invoices]}"
            )
            assert invoices == shop.execute("select id from orders order by 1").fetchall()
            assert {job.state for job in t.jobs()} == {State.SUCCEEDED}

            shop.close()
            engine.dispose()


if __name__ == "__main__":
    main()
