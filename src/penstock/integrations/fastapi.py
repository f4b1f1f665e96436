"""FastAPI (and Starlette): the store is opened and closed with the application.

    jobs = App("postgresql://...")
    api = FastAPI(lifespan=lifespan(jobs))

In a handler, `await task.options(connection=session).enqueue_async(...)` commits the job with the
session of the request; a plain `await task.enqueue_async(...)` commits it at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from penstock.app.app import App
from penstock.app.environment import open_to_run
from penstock.worker import Worker

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(jobs: App, *, worker: bool = False, threads: int = 4) -> Lifespan:
    """A lifespan: opens the store before the first request, and closes it after the last.

    `worker=True` also runs the jobs, in this process: for development and small sites. To combine
    it with a lifespan of your own, enter it there: `async with lifespan(jobs)(api): ...`.
    """

    @asynccontextmanager
    async def opened(_: Any) -> AsyncGenerator[None]:
        await asyncio.to_thread(lambda: open_to_run(jobs) if worker else jobs.broker)
        running = Worker(jobs, threads=threads) if worker else None
        thread = None if running is None else threading.Thread(target=running.work)
        try:
            if thread is not None:
                thread.start()
            yield
        finally:
            if running is not None and thread is not None:
                running.stop()
                await asyncio.to_thread(thread.join)
            await asyncio.to_thread(jobs.close)

    return opened
