"""Resources: made once per process, filled in where a task runs, closed in reverse."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from penstock import App, Refused, use
from penstock.app.resources import Resources
from penstock.run.attempt import run, run_async


class Client:
    def __enter__(self) -> bool:
        raise AssertionError("a value with an __enter__ is still just a value")

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def app() -> App:
    return App("memory:")


def test_a_plain_call_and_a_job_get_the_same_resource(app: App) -> None:
    made: list[Client] = []

    def make_client() -> Client:
        made.append(Client())
        return made[-1]

    seen: list[Client] = []

    @app.task
    def send(to: str, client: Client = use(make_client), times: int = 1) -> None:
        seen.append(client)

    send("ada")
    send("ada", times=2)
    run(app, send, send.job("ada", times=2))

    assert len(made) == 1
    assert seen == made * 3


def test_a_resource_given_in_a_plain_call_is_used(app: App) -> None:
    @app.task
    def send(to: str, client: object = use(lambda: "real")) -> object:
        return client

    assert send("ada", "mine") == "mine"
    assert send("ada", client="mine") == "mine"
    assert send("ada") == "real"


def test_many_threads_make_it_once() -> None:
    resources = Resources()
    made: list[int] = []
    together = threading.Barrier(8)

    def factory() -> int:
        made.append(1)
        return len(made)

    def open_it(_: int) -> Any:
        together.wait()
        return resources.open(factory)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_it, range(8))) == [1] * 8


def test_they_are_closed_in_reverse_and_one_that_fails_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resources = Resources()
    closed: list[str] = []

    def first() -> Iterator[str]:
        yield "first"
        closed.append("first")

    @contextmanager
    def second() -> Iterator[str]:
        yield "second"
        raise OSError("will not close")

    def third() -> Iterator[str]:
        try:
            yield "third"
        finally:
            closed.append("third")

    assert [resources.open(each) for each in (first, second, third)] == ["first", "second", "third"]
    with caplog.at_level(logging.ERROR, "penstock"):
        resources.close()

    assert closed == ["third", "first"]
    assert "a resource could not be closed" in caplog.text
    resources.close()
    assert closed == ["third", "first"]


def test_after_closing_it_is_made_again() -> None:
    resources = Resources()
    made: list[int] = []

    def factory() -> Iterator[int]:
        made.append(1)
        yield len(made)

    assert resources.open(factory) == 1
    resources.close()
    assert resources.open(factory) == 2
    resources.close()


def test_a_factory_that_fails_is_tried_again() -> None:
    resources = Resources()
    answers = iter([OSError("not yet"), None])

    def factory() -> str:
        if error := next(answers):
            raise error
        return "made"

    with pytest.raises(OSError, match="not yet"):
        resources.open(factory)
    assert resources.open(factory) == "made"


def test_async_tasks_may_have_async_resources(app: App) -> None:
    closed: list[str] = []

    async def one() -> str:
        await asyncio.to_thread(len, "")
        return "one"

    async def two() -> AsyncIterator[str]:
        yield "two"
        closed.append("two")

    @asynccontextmanager
    async def three() -> AsyncIterator[str]:
        yield "three"
        closed.append("three")

    def four() -> str:
        return "four"

    @app.task
    async def gather(
        n: int, a: str = use(one), b: str = use(two), c: str = use(three), d: str = use(four)
    ) -> list[str]:
        return [a, b, c, d]

    async def main() -> None:
        outcomes = await asyncio.gather(*(run_async(app, gather, gather.job(n)) for n in range(3)))
        assert {outcome and outcome.result for outcome in outcomes} == {
            b'["one","two","three","four"]'
        }
        assert await gather(1) == ["one", "two", "three", "four"]
        await asyncio.to_thread(app.resources.close)

    asyncio.run(main())

    assert closed == ["three", "two"]


def test_a_loop_that_stopped_is_run_to_close_what_lived_on_it(app: App) -> None:
    closed: list[str] = []

    async def two() -> AsyncIterator[str]:
        yield "two"
        closed.append("two")

    with asyncio.Runner() as runner:
        assert runner.run(app.resources.open_async(two)) == "two"
        app.resources.close()

    assert closed == ["two"]


def test_an_async_resource_for_a_plain_task_is_refused(app: App) -> None:
    async def make() -> str:
        return "x"

    @app.task
    def send(client: str = use(make)) -> None: ...

    with pytest.raises(Refused, match="is asynchronous, and the task is not"):
        send()


def test_a_test_replaces_what_a_factory_makes(app: App) -> None:
    def make() -> str:
        return "real"

    @app.task
    def name(client: str = use(make)) -> str:
        return client

    with app.replace(make, "fake"):
        assert name() == "fake"
        with app.replace(make, "other"):
            assert name() == "other"
        assert name() == "fake"
    assert name() == "real"


def test_a_factory_must_be_callable() -> None:
    with pytest.raises(Refused, match=r"use\('client'\): give it the function"):
        use("client")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own(app: App) -> None:
    def make() -> int:
        return os.getpid()

    @app.task
    def where(pid: int = use(make)) -> int:
        return pid

    assert where() == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if where() == os.getpid() else 1)

    assert os.waitpid(child, 0)[1] == 0
