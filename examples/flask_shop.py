"""Flask: jobs in the application's database, tasks inside of its context.

python examples/flask_shop.py
"""

import tempfile
from pathlib import Path

import sqlalchemy
from flask import Flask, current_app, request
from sqlalchemy.orm import Session

from penstock.integrations.flask import FlaskApp
from penstock.worker import Worker

jobs = FlaskApp()  # beside your other extensions


@jobs.task(name="shop:confirm")
def confirm(order: int) -> str:
    """Flask's config is there, as in a view."""
    return f"{current_app.config['SHOP']}: order {order} is confirmed"


def create_app(file: Path) -> Flask:
    """An application in the usual way; `penstock worker wsgi:jobs` would run its jobs."""
    shop = Flask("shop")
    shop.config.update(SHOP="Ada's shop", PENSTOCK_URL=f"sqlite:///{file}")
    jobs.init_app(shop)
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")

    @shop.post("/orders")
    def place_order() -> tuple[dict[str, str], int]:
        with Session(engine) as session, session.begin():
            statement = sqlalchemy.text("insert into orders (customer) values (:customer)")
            customer = request.args["customer"]
            order = session.execute(statement, {"customer": customer}).lastrowid
            handle = confirm.options(connection=session).enqueue(order)
            if customer == "mallory":
                session.rollback()
                return {"error": "not from you"}, 403
        return {"job": handle.id}, 201

    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("create table orders (id integer primary key, customer text)")
        )
    shop.extensions["engine"] = engine
    return shop


def main() -> None:
    """Two customers, one of whom is refused; then a worker."""
    with tempfile.TemporaryDirectory() as folder:
        shop = create_app(Path(folder) / "shop.db")
        _ = jobs.broker  # the store's tables, before the first transaction; a worker makes them too
        client = shop.test_client()
        placed = client.post("/orders?customer=ada")
        refused = client.post("/orders?customer=mallory")
        print(placed.status_code, refused.status_code)

        Worker(jobs, drain=True).work()
        print(jobs.handle(placed.get_json()["job"]).result(timeout=10))
        print(f"{len(jobs.broker.history())} job has run")
        jobs.close()
        shop.extensions["engine"].dispose()


if __name__ == "__main__":
    main()
