"""The shop's background work, with what goes wrong in it on a bad day."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from penstock import App, Retry
from shop.database import URL
from shop.gateway import charge_card

app = App(URL)
GATE = Path(os.environ.get("SHOP_GATE", "gate"))  # who waits for it waits until it is there


def wait_at_gate() -> None:
    """Stand for something slow that does not come to an end today."""
    until = time.monotonic() + 300
    while not GATE.exists() and time.monotonic() < until:
        time.sleep(0.05)


@app.task(queue="payments")
def charge(order: int, amount: str) -> None:
    """Charge a card; the gateway declines it."""
    charge_card(order, amount)


@app.task(queue="mail")
def receipt(order: int) -> str:
    """Send a receipt."""
    return f"receipt of {order}"


@app.task(queue="media")
def resize(picture: str) -> str:
    """Resize a picture; one at a time is allowed, and the first takes all day."""
    wait_at_gate()
    return picture


@app.task(queue="stock", retry=Retry(limit=5, delay=3600))
def reserve(order: int) -> int:
    """Reserve what was ordered; there is none, and it is tried again in an hour."""
    message = f"order {order}: no blue teapot is in stock"
    raise LookupError(message)


@app.task(queue="stock")
def ship(reserved: int) -> str:
    """Ship what was reserved."""
    return f"shipped {reserved}"


@app.task(queue="thumbs", mode="process", crash_budget=1)
def thumbnail(picture: str) -> None:
    """Make a thumbnail, in a library that takes its process with it."""
    del picture
    os.abort()


@app.task(queue="news")
def newsletter(customer: int, language: str) -> str:
    """Send a newsletter; the release before this had no language."""
    return f"{customer} {language}"


@app.task(queue="stock")
def hold(order: int) -> int:
    """Hold goods for a minute, or not at all."""
    return order


@app.schedule(every=timedelta(seconds=1), overlap="skip", name="reprice")
@app.task(queue="prices")
def reprice() -> None:
    """Compute all prices; takes much longer than until the next slot."""
    wait_at_gate()


@app.task(queue="search")
def index(product: int) -> int:
    """Index a product; today each takes for ever."""
    wait_at_gate()
    return product
