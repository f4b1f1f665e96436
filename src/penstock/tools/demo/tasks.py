"""The tasks of the demo: quick, slow, failing at first, and failing until a person helps.

Each start is also written to a file of the demo's own, to check Penstock's history against.
"""

from __future__ import annotations

import os
import time

from penstock.app.app import App
from penstock.run.current import current_job
from penstock.task.retry import Retry
from penstock.tools.demo.demo_folder import demo_folder

app = App()
STARTS = "starts.txt"
PROVIDER = "payment-provider-is-up"


@app.task(queue="media")
def thumbnail(number: int) -> str:
    """Quick: one of thousands."""
    _record_start()
    time.sleep(0.03)
    return f"thumbnail-{number}.png"


@app.task(queue="media")
def report(pages: int) -> int:
    """Slow; reports its progress."""
    _record_start()
    for page in range(pages):
        time.sleep(0.1)
        current_job().progress((page + 1) / pages, f"page {page + 1} of {pages}")
    return pages


@app.task(queue="mail", retry=Retry(limit=3, delay=0.5, on=(ConnectionError,)))
def unlucky(to: str) -> str:
    """Fails the first time, and is retried."""
    _record_start()
    if current_job().attempt == 1:
        raise ConnectionError("connection reset by mail.example.org")
    return f"sent to {to}"


@app.task(queue="mail")
def letter(to: str) -> str:
    """A letter."""
    _record_start()
    return f"sent to {to}"


@app.task(queue="payments", secret=("card",), keep_messages=True)
def charge(order: int, card: str) -> str:
    """Fails until the payment provider is up again."""
    _record_start()
    if not (demo_folder() / PROVIDER).exists():
        raise RuntimeError("the payment provider is down")
    return f"order {order} paid with the card that ends in {card[-4:]}"


@app.task(queue="media")
def measure(picture: str) -> int:
    """One picture of an album."""
    _record_start()
    time.sleep(0.05)
    return len(picture)


@app.task(queue="media")
def album(sizes: list[int], approval: str) -> str:
    """Runs once all pictures are measured and a person has approved."""
    _record_start()
    return f"an album of {len(sizes)} pictures, approved by {approval}"


def _record_start() -> None:
    job = current_job()
    line = f"{job.id} {job.attempt} {os.getpid()}\n".encode()
    # One write to a file opened for appending: lines of several processes do not mix.
    number = os.open(demo_folder() / STARTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, line)
    finally:
        os.close(number)
