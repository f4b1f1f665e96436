"""A worker at full speed whose tasks do nothing but write down when they started."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from penstock import App
from penstock.worker import Worker

url, ledger = sys.argv[1:3]
app = App(url)
book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="tick", queue="ticks")
def tick(n: int) -> None:
    started = time.time()
    os.write(book, f"{n} {started!r}\n".encode())


@app.task(name="tick_async", queue="ticks")
async def tick_async(n: int) -> None:
    started = time.time()
    os.write(book, f"{n} {started!r}\n".encode())


@app.task(name="slow", queue="ticks")
def slow(n: int) -> None:
    tick(n)
    time.sleep(1)


if __name__ == "__main__":
    worker = Worker(app)

    def stop(*_: Any) -> None:
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    worker.work()
