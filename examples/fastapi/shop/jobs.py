"""The shop's background work."""

from sqlalchemy.orm import Session

from penstock import App
from shop.database import URL, Order, engine

app = App(URL)


@app.task(queue="mail")
def confirm(order: int) -> str:
    """Confirm an order to its customer."""
    with Session(engine) as session, session.begin():
        row = session.get_one(Order, order)
        row.confirmed = True
        return f"{row.customer}: order {order} is confirmed"
