"""A process that enqueues until it is stopped, and writes down which jobs were accepted.

    python -m penstock.tools.demo.storm.producer ACCEPTED_FILE SEED

A line of the file is the id of one job, written after its enqueue has returned.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.errors import StoreFull, StoreUnreachable, UnknownOutcome
from penstock.tools.demo.storm import tasks

T = TypeVar("T")

_LOT = 20
_PAUSE_SECONDS = 0.05
_MOST_WAITING = 2_000  # then it waits for the workers
_NAPS = (0.0, 0.0, 0.0, 0.01, 0.01, 0.03, 0.1, 0.5)


def produce(file: int, seed: int) -> None:
    """Enqueue until the process ends."""
    chance = random.Random(seed)  # noqa: S311  to be repeated
    for number in range(sys.maxsize):
        if number % 20 == 0:
            _until_answered(_wait_for_workers)
        if number % 10 == 9:
            parts = tasks.part.map(range(chance.randint(1, 8)))
            jobs: list[Any] = [tasks.collect.job(parts.output)]
        else:
            jobs = [_some_job(chance, number) for _ in range(_LOT)]
        accepted = _until_answered(partial(_send, jobs))
        os.write(file, "".join(f"{job_id}\n" for job_id in accepted).encode())
        time.sleep(_PAUSE_SECONDS)


def _some_job(chance: random.Random, number: int) -> Any:
    seconds = chance.choice(_NAPS)
    makers: tuple[Callable[[], Any], ...] = (
        lambda: tasks.work.job(number, seconds),
        lambda: tasks.work.options(delay=chance.uniform(0, 2)).job(number, seconds),
        lambda: tasks.work_async.job(number, seconds),
        lambda: tasks.stumble.job(number),
        lambda: tasks.limited.job(seconds / 10),
        lambda: tasks.charge.job(number, seconds),
        lambda: tasks.transfer.job(seconds),
    )
    return chance.choices(makers, (3, 1, 2, 1, 1, 1, 1))[0]()


def _send(jobs: list[Any]) -> list[str]:
    """Enqueue them, and return their ids."""
    try:
        return [handle.id for handle in tasks.app.enqueue(jobs)]
    except UnknownOutcome as error:
        jobs[:] = error.jobs  # stored or not: sent again, each is stored once
        raise


def _wait_for_workers() -> None:
    while sum(count.total for count in tasks.app.broker.count()) > _MOST_WAITING:
        time.sleep(0.2)


def _until_answered(call: Callable[[], T]) -> T:
    """Call until the store answers."""
    while True:
        try:
            return call()
        except (StoreUnreachable, StoreFull, UnknownOutcome):
            time.sleep(0.1)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as sudden as a kill
    path, seed = sys.argv[1:]
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    produce(file, int(seed))


if __name__ == "__main__":
    main()
