"""The app of the stories: tasks that work, hang, crash and grow, and write down that they ran.

`LEDGER` names a file that is not the system under test: one line for every start, written with one
system call, so that it outlives a kill.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import App, Retry, current_job

TASKS: list[tuple[Callable[..., Any], dict[str, Any]]] = []
kept: list[bytes] = []


def ledger(*words: object) -> None:
    """Write down that something happened, whatever becomes of this process."""
    line = " ".join(str(word) for word in (*words, os.getpid(), time.monotonic())) + "\n"
    descriptor = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def task(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the function below a task of every app of the stories, by its own name."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        TASKS.append((function, {"name": function.__name__, **options}))
        return function

    return add


def make_app(url: str | None = None) -> App:
    """The tasks on a store of one's own."""
    app = App(url)
    for function, options in TASKS:
        make = app.batch_task if "size" in options else app.task
        make(**options)(function)
    return app


@task()
def nap(n: int, seconds: float = 0.0) -> int:
    ledger("nap", n)
    time.sleep(seconds)
    return n


@task()
def nap_until(path: str, n: int) -> int:
    """Until there is this file."""
    ledger("nap_until", n)
    while not Path(path).exists():
        time.sleep(0.02)
    return n


@task()
def nap_and_wake(n: int, seconds: float = 0.0) -> int:
    """Leaves the times of its beginning and its end, by the one clock of this machine."""
    ledger("asleep", n)
    time.sleep(seconds)
    ledger("awake", n)
    return n


@task()
async def nap_async(n: int, seconds: float = 0.0) -> int:
    ledger("nap_async", n)
    await asyncio.sleep(seconds)
    return n


@task()
async def nap_once_async(n: int) -> int:
    await asyncio.sleep(0)
    return n


@task()
def hold(seconds: float) -> str:
    """Keep the interpreter: a C call that does not let go of it."""
    ledger("hold", current_job().id)
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    return "held"


@task()
def close_descriptors() -> int:
    """At the first attempt, close all of them, and open none again: no store can be reached."""
    ledger("close_descriptors", current_job().attempt)
    if current_job().attempt == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        os.closerange(3, 1024)
    return current_job().attempt


@task()
def fall(signal_name: str = "SIGSEGV") -> None:
    """Says something, and ends its process by a signal of this name, or with a code of its own."""
    logging.getLogger("shop").warning("about to fall over %s", current_job().attempt)
    if signal_name.isdigit():
        os._exit(int(signal_name))
    os.kill(os.getpid(), signal.Signals[signal_name])
    time.sleep(60)


@task(secret=("card",))
def fall_with_a_secret(card: str) -> None:
    logging.getLogger("shop").warning("about to fall over %s", card)
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60)


@task()
def leave() -> None:
    ledger("leave", 0)
    os._exit(0)


@task(timeout=0.5)
def spin() -> None:
    ledger("spin", 0)
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


@task(timeout=0.5)
def swallow() -> None:
    ledger("swallow", 0)
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            continue  # the worst there is


@task(timeout=0.5)
def sleep_for_ever() -> None:
    ledger("sleep_for_ever", 0)
    time.sleep(1e6)


@task()
def sleep_at_first() -> int:
    """Runs until its process is killed; the attempt after that ends at once."""
    ledger("sleep_at_first", current_job().attempt)
    if current_job().attempt == 1:
        time.sleep(3600)
    return current_job().attempt


@task(timeout=0.5)
def hold_for_ever() -> None:
    ledger("hold_for_ever", 0)
    ctypes.PyDLL(None).sleep(1_000_000)


@task(timeout=0.5)
async def block_loop() -> None:
    ledger("block_loop", 0)
    time.sleep(1e6)  # noqa: ASYNC251  that is the point


@task(mode="process")
def crunch(n: int) -> list[int]:
    ledger("crunch", n)
    return [n, os.getpid()]


@task(mode="process")
def meet_apart(others: int) -> None:
    """Go on when so many run at the same time."""
    ledger("meet_apart", 0)
    while Path(os.environ["LEDGER"]).read_text().count("meet_apart") < others:
        time.sleep(0.02)


@task(mode="process", at_most_once=True)
def die_before_fork() -> None:
    """Be killed, while a fork lives on with all that was open."""
    fork = os.fork()
    if fork == 0:
        time.sleep(1e6)
    ledger("forked", fork)
    os.kill(os.getpid(), signal.SIGKILL)


@task(mode="process", timeout=0.5)
def deaf_process() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ledger("deaf_process", 0)
    time.sleep(1e6)


@task(mode="process", timeout=0.5)
def warned_process() -> None:
    signal.signal(signal.SIGTERM, lambda *_: ledger("warned", 0))
    ledger("warned_process", 0)
    while True:
        time.sleep(0.05)


@task(mode="process")
def noting(value: str) -> str:
    """Leave a note and a row, from a process of its own."""
    current_job().snapshot(value)
    with current_job().transaction() as connection:
        mark = "%s" if os.environ["PENSTOCK_URL"].startswith("postgres") else "?"
        connection.execute(f"insert into effect values ({mark})", (value,))
    return value


@task()
def poison(n: int, *, deadly: bool) -> int:
    ledger("poison", n)
    if deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.005)
    return n


@task(size=8, linger=0.05)
def poison_batch(numbers: list[int]) -> list[int]:
    """Die of a negative number."""
    ledger("poison_batch", *numbers)
    if min(numbers) < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers


@task(size=10, linger=0.05)
async def nap_batch(naps: list[float]) -> None:
    ledger("nap_batch", *naps)
    await asyncio.sleep(max(naps))


def note_down(n: int) -> int:
    """Ask the store for all kinds of things, once the test has taken it away."""
    ledger("note_down", n)
    while not os.path.exists(f"{os.environ['LEDGER']}.away"):  # noqa: PTH110
        time.sleep(0.02)
    current_job().snapshot({"n": n})
    current_job().event("noted", n=n)
    value = current_job().step("double", lambda: 2 * n)
    app.tasks["nap"].options(key=str(n)).enqueue(n)
    return value


@task(mode="process")
def note_down_apart(n: int) -> int:
    return note_down(n)


@task()
async def note_down_async(n: int) -> int:
    return await asyncio.to_thread(note_down, n)


task()(note_down)


@task(at_most_once=True)
def charge(n: int, seconds: float = 0.0) -> int:
    ledger("charge", n)
    time.sleep(seconds)
    return n


@task(retry=Retry(limit=2, delay=0.5))
def stumble(n: int) -> int:
    """Fail the first time."""
    ledger("stumble", n)
    if current_job().attempt == 1:
        raise OSError("the first time")
    return n


@task(on_error="delete")
def fail(n: int) -> None:
    """Fail, and be gone."""
    raise OSError(f"number {n}")


@task()
def grow(megabytes: int) -> int:
    kept.append(os.urandom(1 << 20) * megabytes)
    ledger("grow", megabytes)
    return os.getpid()


app = make_app()
