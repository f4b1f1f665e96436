"""The tasks of the demo of shards: many that are alike, and some that keep an order."""

from __future__ import annotations

import time

from penstock.app.app import App

app = App()
app.queue("customers", ordered="wait")


@app.task(queue="orders")
def pack(number: int) -> int:
    """One of many; a limit says how many run on all shards together."""
    time.sleep(0.02)
    return number


@app.task(queue="customers")
def visit(number: int) -> int:
    """One after the other for each customer."""
    time.sleep(0.01)
    return number
