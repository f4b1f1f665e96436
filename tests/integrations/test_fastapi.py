"""FastAPI: the store is open while the application is, and a worker runs beside it if asked to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI

from penstock import App, KeyRing, State
from penstock.integrations.fastapi import lifespan


@pytest.fixture
def jobs(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'jobs.db'}")


def test_the_store_is_open_while_the_application_is(jobs):
    api = FastAPI(lifespan=lifespan(jobs))

    async def story() -> None:
        assert jobs._broker is None
        async with api.router.lifespan_context(api):
            assert jobs._broker is not None
        assert jobs._broker is None

    asyncio.run(story())


def test_a_worker_runs_jobs_for_as_long_and_is_gone_afterwards(jobs):
    @jobs.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    api = FastAPI(lifespan=lifespan(jobs, worker=True, threads=1))

    async def story() -> int:
        async with api.router.lifespan_context(api):
            handle = await double.enqueue_async(21)
            return await handle.result_async(timeout=60)

    before = {thread.name for thread in threading.enumerate()}
    assert asyncio.run(story()) == 42
    assert {thread.name for thread in threading.enumerate()} <= before | {
        "penstock-waiter",
        "penstock-enqueue",  # ends by itself when nobody awaits for a while
    }


def test_without_one_nothing_runs(jobs):
    @jobs.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    api = FastAPI(lifespan=lifespan(jobs))

    async def story() -> State | None:
        async with api.router.lifespan_context(api):
            handle = await double.enqueue_async(21)
            return handle.state()

    assert asyncio.run(story()) is State.READY


def test_a_lifespan_of_ones_own_can_hold_it(jobs):
    happened: list[str] = []

    @asynccontextmanager
    async def own(api: FastAPI) -> AsyncGenerator[None]:
        async with lifespan(jobs)(api):
            happened.append("open" if jobs._broker is not None else "shut")
            yield
            happened.append("still open" if jobs._broker is not None else "shut")

    api = FastAPI(lifespan=own)

    async def story() -> None:
        async with api.router.lifespan_context(api):
            happened.append("serving")

    asyncio.run(story())
    assert happened == ["open", "serving", "still open"]


def test_an_app_with_keys_opens_its_store_behind_them(tmp_path):
    jobs = App(f"sqlite:///{tmp_path / 'jobs.db'}", keys=KeyRing(KeyRing.new_key()))

    @jobs.task(name="echo")
    def echo(text: str) -> str:
        return text

    api = FastAPI(lifespan=lifespan(jobs, worker=True, threads=1))

    async def story() -> str:
        async with api.router.lifespan_context(api):
            handle = await echo.enqueue_async("hunter2")
            assert b"hunter2" not in jobs.broker.store.get(handle.id).body
            return await handle.result_async(timeout=60)

    assert asyncio.run(story()) == "hunter2"
