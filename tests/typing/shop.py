"""An app as a user has it, without pyspark. On each line marked `# wrong` a checker finds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock import App, Handle, Retry, chain, current_job, group

app = App("sqlite:///shop.db")
app.queue("mail", timeout=60, running=4)


@dataclass
class Order:
    number: int
    cents: int


class Declined(Exception):
    pass


@app.task
def total(order: Order) -> int:
    return order.cents


@app.task(queue="mail", retry=Retry(limit=5))
async def send(to: str, text: str, *, copies: int = 1) -> bool:
    current_job().progress(0.5, f"{copies} to {to}")
    return bool(text)


@app.task
def add(cents: list[int]) -> int:
    return sum(cents)


@app.task(timeout=30)
def charge(order: Order, by: str = "card") -> str:
    if by == "cheque":
        raise Declined(by)
    return f"{order.number} by {by}"


@app.task
def tell(receipt: str) -> None:
    send.enqueue("shop@example.org", receipt)


@app.schedule(every=3600)
@app.task
def count_stock() -> None: ...


def buy(order: Order) -> str:
    handle: Handle[str] = charge.options(priority=5, delay=timedelta(seconds=3)).enqueue(order)
    cents: int = total(order)
    app.enqueue([chain(charge.job(order), tell)])
    app.enqueue([send.job(f"{n}@example.org", "thanks") for n in range(cents)])
    app.enqueue([chain(group(total.job(order), total.job(order)), add)])
    send.options(unique=f"thanks-{order.number}").enqueue("ada@example.org", "thanks")
    receipt: str = handle.result(timeout=10)
    return receipt


def mistakes(order: Order) -> None:
    charge.enqueue()  # wrong
    charge.enqueue("4711")  # wrong
    charge.enqueue(order, buy="card")  # wrong
    send.enqueue("ada", "hello", copies="two")  # wrong
    send.options(prioritty=3)  # wrong
    charge.options(delay="soon")  # wrong
    charge.options(priority="high")  # wrong
    number: int = charge.enqueue(order).result()  # wrong
    chain(total.job(order), charge)  # wrong
    print(number)
    app.task(timout=30)  # wrong
