"""A shop that confirms orders by mail."""

from dataclasses import dataclass
from decimal import Decimal

from penstock import App, Retry, use

app = App()


@dataclass
class Order:
    """What travels with the job: plain, typed data."""

    number: int
    customer: str
    total: Decimal


class Mailer:
    """Stands for a mail service."""

    def send(self, to: str, text: str) -> None:
        print(f"to {to}: {text}")


def make_mailer() -> Mailer:
    """Make what the tasks need; called once per process, and never stored."""
    return Mailer()


@app.task(queue="mail", retry=Retry(limit=3, delay=60, on=(OSError,)), timeout=30)
def confirm(order: Order, mailer: Mailer = use(make_mailer)) -> str:
    """Confirm an order; a network error is tried again after a minute."""
    text = f"Order {order.number}, {order.total} EUR, is on its way."
    mailer.send(order.customer, text)
    return text
