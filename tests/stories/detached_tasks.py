"""The app of the stories of detached jobs: tasks that wait to be told, and write down what they do.

A file beside the ledger says that a task may go on: no story depends on the machine's speed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import App, Retry, current_job

_LEAVE_ONE_BEHIND = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(1e6)"]
subprocess.Popen(sleep, start_new_session=True)
"""
TASKS: list[tuple[Callable[..., Any], dict[str, Any]]] = []


def ledger(*words: object) -> None:
    """Write down that something happened, whatever becomes of this process."""
    line = " ".join(str(word) for word in (*words, os.getpid())) + "\n"
    descriptor = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def told(word: str) -> bool:
    return Path(os.environ["LEDGER"]).with_name(f"told-{word}").exists()


def wait_until_told(word: str) -> None:
    while not told(word):
        time.sleep(0.02)


def task(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the function below a detached task, by its own name."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        TASKS.append((function, {"name": function.__name__, "detached": True, **options}))
        return function

    return add


def make_app(url: str | None = None) -> App:
    """The tasks on a store of one's own."""
    app = App(url)
    for function, options in TASKS:
        app.task(**options)(function)
    return app


@task()
def travel(stops: int) -> int:
    """Stop by stop, each when it is told, with a snapshot after each."""
    first = current_job().last_snapshot(int) or 0
    ledger("travel", current_job().attempt)
    for stop in range(first, stops):
        wait_until_told(f"go-{stop}")
        ledger("stop", stop)
        current_job().snapshot(stop + 1)
        current_job().progress((stop + 1) / stops)
    print("arrived")
    return stops


@task(retry=Retry(limit=10_000, delay=0))
def stumble_on(stops: int, seed: int) -> int:
    """Raise, leave or die at random, at every step; each step counts once."""
    job = current_job()
    chance = random.Random(f"{seed} {job.attempt}")
    total = 0
    for stop in range(stops):
        total += job.step(f"stop {stop}", counted, stop)
        fate = chance.randrange(6)
        if fate == 0:
            raise OSError(f"stumbled at {stop}")
        if fate == 1:
            os._exit(3)
        if fate == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return total


def counted(stop: int) -> int:
    ledger("counted", current_job().id, stop)
    return stop


@task()
def hand_out(parts: int) -> int:
    """Enqueue a job in each step, under an id that is the same in every attempt."""
    job = current_job()
    for part in range(parts):
        job.step(f"part {part}", hand_out_one, part)
    return parts


def hand_out_one(part: int) -> None:
    job = current_job()
    echo = job._app.tasks["echo"]
    echo.options(unique=f"{job.id}:{part}", unique_for=3600.0, unique_until="time").enqueue(part)
    ledger("handed", part, job.attempt)
    if job.attempt == part + 1:
        os.kill(os.getpid(), signal.SIGKILL)  # between queueing it and noting that


@task()
def report_home(n: int) -> int:
    """Turn to the store in every way that a job has, when it is told."""
    job = current_job()
    ledger("begun", job.attempt)
    wait_until_told("report")
    ledger("report", job.attempt)
    job.snapshot(n)
    job.progress(0.5, "half of it")
    job.event("reported", n=n)
    job.step("hand out", report_part, n)
    ledger("reported", job.attempt)
    return job.last_snapshot(int) or 0


def report_part(n: int) -> None:
    job = current_job()
    echo = job._app.tasks["echo"]
    echo.options(unique=f"{job.id}:{n}", unique_for=3600.0, unique_until="time").enqueue(n)


@task(detached=False)
def echo(n: int) -> int:
    ledger("echo", n)
    return n


@task()
def count_up(n: int) -> int:
    """A part that waits until it is told."""
    ledger("counted-up", n, current_job().attempt)
    wait_until_told(f"count-{n}")
    return n


@task(retry=Retry(limit=10_000, delay=0))
def gather(parts: int) -> int:
    """Wait for detached parts, then for others; killed in most of its attempts."""
    job = current_job()
    tasks = job._app.tasks
    ledger("gather", job.attempt)
    try:
        first = job.wait_for_jobs("first", [tasks["count_up"].job(n) for n in range(parts)])
    finally:  # asked for, and not stored
        die(job.attempt, itself=1, keeper=2)
    total = job.step("first total", add_up, [each.result() for each in first])
    die(job.attempt, itself=4)  # they have ended, and it is noted
    try:
        second = job.wait_for_jobs("second", tasks["echo"].map(range(parts)))
    finally:
        die(job.attempt, itself=5, keeper=6)
    return total + sum(each.result() for each in second)


def die(attempt: int, *, itself: int = 0, keeper: int = 0) -> None:
    """Kill this process in one attempt, and in another the one that would settle it."""
    if attempt == itself:
        os.kill(os.getpid(), signal.SIGKILL)
    if attempt == keeper:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1e6)


def add_up(numbers: list[int]) -> int:
    ledger("added", *numbers)
    return sum(numbers)


@task()
def chatter(lines: int) -> None:
    """Print more than anybody reads."""
    print("the first word")
    for number in range(lines):
        print(f"{number:08d}", "a" * 1014)
    print("the last word")


@task(at_most_once=True)
def leave() -> None:
    """Be gone without a word, as if all were well."""
    ledger("leave", current_job().id)
    os._exit(0)


@task()
def hang_up() -> int:
    """Close what its output goes to."""
    sys.stdout.close()
    return 7


@task(at_most_once=True)
def hide() -> None:
    """Go on in a fork, and leave."""
    if os.fork() == 0:
        ledger("hidden", current_job().id)
        time.sleep(1e6)
    os._exit(0)


@task()
def die_before_forks() -> int:
    """Be killed, while a fork lives on with all that was open."""
    if current_job().attempt > 1:
        return current_job().attempt
    if os.fork() == 0:
        ledger("forked", current_job().id)
        time.sleep(1e6)
    wait_until_told("die")
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@task()
def outlive_strays(count: int) -> int:
    """Leave processes whose parents are gone, have them end, and wait until none is to be seen."""
    stray = f"import sys; sys.path[:0] = {[str(Path(__file__).parent)]!r}; import detached_tasks; "
    stray += "detached_tasks.wait_until_told('go')"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {stray!r}])"
    for _ in range(count):
        subprocess.run([sys.executable, "-c", start], check=True)
    while len(children_of(os.getppid())) < count + 1:
        time.sleep(0.02)
    ledger("strays", len(children_of(os.getppid())) - 1)
    while len(children_of(os.getppid())) > 1:
        time.sleep(0.02)
    return count


def children_of(pid: int) -> list[int]:
    """The processes that it has to see to, those that have ended among them."""
    return [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]


@task()
def tell_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@task()
def mutter(word: str) -> None:
    """Say something, and nothing more for long."""
    print("a word")
    ledger("muttered", current_job().id)
    wait_until_told(word)


@task()
def fail(n: int) -> None:
    raise ValueError(f"number {n}")


@task()
def sit(word: str) -> None:
    """Until it is told; open to an interruption."""
    ledger("sit", current_job().id)
    try:
        wait_until_told(word)
    finally:
        ledger("rose", current_job().id)


@task()
async def sit_async(word: str) -> None:
    ledger("sit", current_job().id)
    try:
        while not told(word):  # noqa: ASYNC110  another process says so
            await asyncio.sleep(0.02)
    finally:
        ledger("rose", current_job().id)


@task(timeout=0.5)
def oversleep() -> None:
    ledger("oversleep", 0)
    time.sleep(1e6)


@task(max_memory=200 << 20, at_most_once=True)
def grow() -> None:
    """Hold more than it may."""
    held = os.urandom(1 << 20) * 300
    time.sleep(1e6)
    del held


@task(max_cpu=0.2, at_most_once=True)
def burn() -> None:
    """Have a child that works for ever."""
    subprocess.run([sys.executable, "-c", "while True: pass"], check=False)


@task()
def deaf() -> None:
    """Start a grandchild in a session of its own, and listen to nothing."""
    subprocess.run([sys.executable, "-c", _LEAVE_ONE_BEHIND], check=True)
    ledger("deaf", current_job().id)
    while True:
        try:
            time.sleep(1e6)
        except BaseException:
            continue


app = make_app()
