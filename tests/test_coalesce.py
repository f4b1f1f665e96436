"""Many callers, one call of the broker: shared, fair, and each hears only of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import App, Job, Refused, StoreFull, UnknownOutcome
from penstock.broker.values import Enqueued
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.coalesce import Coalescer, ToStore


class Store:
    """Records every call; the first one is held until the test lets it go."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.entered = threading.Event()
        self.go = threading.Event()
        self.fail: Callable[[list[str]], BaseException | None] = lambda _: None

    def send(self, jobs: ToStore) -> Enqueued:
        tasks = [job.task for job in jobs if isinstance(job, Job)]
        self.calls.append(tasks)
        if len(self.calls) == 1:
            self.entered.set()
            assert self.go.wait(20)
        if error := self.fail(tasks):
            raise error
        return Enqueued()


def a_job(name: str) -> Job[Any]:
    return Job(task=name)


def behind_the_first(
    store: Store, coalescer: Coalescer, names: list[str]
) -> tuple[Any, dict[str, Any]]:
    """Send one job, and the others while that call is on its way; what each of them heard."""
    with ThreadPoolExecutor(len(names) + 1) as pool:
        first = pool.submit(coalescer.enqueue, [a_job("first")])
        assert store.entered.wait(20)
        others = {name: pool.submit(coalescer.enqueue, [a_job(name)]) for name in names}
        _until(lambda: len(coalescer._callers) == len(names))
        store.go.set()
    heard = {name: future.exception() or future.result() for name, future in others.items()}
    return first.exception() or first.result(), heard


def _until(condition: Callable[[], bool]) -> None:
    tick = threading.Event()
    for _ in range(20_000):
        if condition():
            return
        tick.wait(0.001)
    raise AssertionError


def test_one_caller_alone_sends_at_once() -> None:
    store = Store()
    store.go.set()
    coalescer = Coalescer(store.send)

    coalescer.enqueue([a_job("a"), a_job("b")])
    coalescer.enqueue([a_job("c")])

    assert store.calls == [["a", "b"], ["c"]]


def test_those_who_come_meanwhile_share_the_next_call() -> None:
    store = Store()
    names = [f"job{n}" for n in range(20)]

    first, heard = behind_the_first(store, Coalescer(store.send), names)

    assert first == Enqueued()
    assert set(heard) == set(names)
    assert all(isinstance(answer, Enqueued) for answer in heard.values())
    assert len(store.calls) == 2
    assert sorted(store.calls[1]) == sorted(names)


def test_a_refused_job_fails_only_its_own_caller() -> None:
    store = Store()
    store.fail = lambda tasks: Refused(f"{tasks}: bad") if "bad" in tasks else None

    _, heard = behind_the_first(store, Coalescer(store.send), ["a", "bad", "b"])

    assert isinstance(heard["bad"], Refused)
    assert isinstance(heard["a"], Enqueued)
    assert isinstance(heard["b"], Enqueued)


def test_a_lost_answer_gives_each_caller_the_whole_flush_as_it_was_packed() -> None:
    """Sent again in the same pieces it is recognised, whoever does so first."""
    store = Store()
    store.fail = lambda tasks: UnknownOutcome("lost", ["packed"]) if "a" in tasks else None

    _, heard = behind_the_first(store, Coalescer(store.send), ["a", "b"])

    assert set(heard) == {"a", "b"}
    for error in heard.values():
        assert isinstance(error, UnknownOutcome)
        assert error.jobs == ["packed"]
    assert heard["a"] is not heard["b"]


def test_a_full_store_is_told_to_everybody_by_an_error_of_their_own() -> None:
    store = Store()
    store.fail = lambda tasks: StoreFull("no room") if "a" in tasks else None

    _, heard = behind_the_first(store, Coalescer(store.send), ["a", "b"])

    assert all(isinstance(error, StoreFull) for error in heard.values())
    assert heard["a"] is not heard["b"]


def test_an_interrupted_leader_takes_nobody_with_it() -> None:
    store = Store()
    interrupts = iter([KeyboardInterrupt()])
    store.fail = lambda tasks: next(interrupts, None) if "a" in tasks else None

    _, heard = behind_the_first(store, Coalescer(store.send), ["a", "b", "c"])

    interrupted = [name for name, answer in heard.items() if isinstance(answer, KeyboardInterrupt)]
    assert len(interrupted) == 1
    assert sorted(store.calls[2]) == sorted(set(heard) - set(interrupted))


def test_nobody_leads_for_ever() -> None:
    """Each of many busy callers gets through: every call ends once its own jobs were sent."""
    leaders: list[str] = []
    lock = threading.Lock()

    def send(jobs: ToStore) -> Enqueued:
        with lock:
            leaders.append(threading.current_thread().name)
        return Enqueued()

    coalescer = Coalescer(send)

    def caller(number: int) -> int:
        for n in range(200):
            coalescer.enqueue([a_job(f"{number}.{n}")])
        return number

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(caller, range(16), timeout=60)) == list(range(16))
    assert coalescer._callers == []
    assert not coalescer._sending


def test_an_async_caller_is_answered_on_its_own_loop() -> None:
    store = Store()
    store.go.set()
    coalescer = Coalescer(store.send)
    store.fail = lambda tasks: (
        Refused("bad") if tasks == ["bad"] or (len(tasks) > 1 and "bad" in tasks) else None
    )

    before = set(threading.enumerate())

    async def main() -> list[Any]:
        names = [f"job{n}" for n in range(200)] + ["bad"]
        calls = (coalescer.enqueue_async([a_job(name)]) for name in names)
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(main())

    assert all(isinstance(answer, Enqueued) for answer in answers[:-1])
    assert isinstance(answers[-1], Refused)
    begun = set(threading.enumerate()) - before
    assert [each.name for each in begun] == ["penstock-enqueue"]


def test_an_async_caller_that_gave_up_hinders_nobody() -> None:
    store = Store()
    coalescer = Coalescer(store.send)

    async def main() -> None:
        first = asyncio.create_task(coalescer.enqueue_async([a_job("a")]))
        await asyncio.to_thread(store.entered.wait, 20)
        gave_up = asyncio.create_task(coalescer.enqueue_async([a_job("b")]))
        other = asyncio.create_task(coalescer.enqueue_async([a_job("c")]))
        await asyncio.to_thread(_until, lambda: len(coalescer._awaited) == 2)
        gave_up.cancel()
        store.go.set()
        assert await first == Enqueued()
        assert await other == Enqueued()

    asyncio.run(main())

    assert store.calls == [["a"], ["b", "c"]]


def test_tasks_enqueue_through_it_and_each_handle_is_right(memory_broker: MemoryBroker) -> None:
    app = App(broker=memory_broker)

    @app.task
    def send(n: int) -> None: ...

    async def main() -> list[Any]:
        return await asyncio.gather(
            *(send.options(unique="one").enqueue_async(n) for n in range(5)),
            *(send.enqueue_async(n) for n in range(5)),
        )

    handles = asyncio.run(main())

    unique, plain = handles[:5], handles[5:]
    assert sum(handle.stored for handle in unique) == 1
    assert len({handle.id for handle in unique}) == 1
    assert all(handle.stored for handle in plain)
    assert len({handle.id for handle in plain}) == 5


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_call_leaves_the_child_free(memory_broker: MemoryBroker) -> None:
    app = App(broker=memory_broker)

    @app.task
    def send(n: int) -> None: ...

    app._coalescer._sending = True  # as another thread's call would leave it
    child = os.fork()
    if child == 0:
        send.enqueue(1)
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0


class LateLock(threading.Condition):
    """Whose wait times out while somebody arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.arrive: Callable[[], object] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.release()
        self.arrive()
        self.acquire()
        return False


def test_an_async_caller_that_comes_as_the_thread_gives_up_is_answered() -> None:
    store = Store()
    store.go.set()
    coalescer = Coalescer(store.send)
    coalescer._arrived = late = LateLock()

    async def main() -> None:
        arrived, appended = threading.Event(), threading.Event()

        def arrive() -> None:
            late.arrive = lambda: None
            arrived.set()
            assert appended.wait(20)

        late.arrive = arrive
        await coalescer.enqueue_async([a_job("first")])
        await asyncio.to_thread(arrived.wait, 20)
        second = asyncio.create_task(coalescer.enqueue_async([a_job("second")]))
        await asyncio.sleep(0)
        appended.set()
        await asyncio.wait_for(second, 20)

    asyncio.run(main())

    assert store.calls == [["first"], ["second"]]


def test_what_one_caller_did_wrong_does_not_fail_the_others() -> None:
    """Whatever the error is, unless the store itself is in trouble."""
    store = Store()
    store.fail = lambda tasks: ValueError("a NUL") if "a" in tasks else None

    _, heard = behind_the_first(store, Coalescer(store.send), ["a", "b"])

    assert isinstance(heard["a"], ValueError)
    assert not isinstance(heard["b"], Exception)
