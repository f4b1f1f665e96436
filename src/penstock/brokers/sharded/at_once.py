"""Ask several shards at once, each in a thread of its own, and wait for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")
_LOOK_SECONDS = 1.0  # how often whoever waits looks whether its thread is interrupted


def answers_of(questions: Mapping[str, Callable[[], T]]) -> dict[str, T | BaseException]:
    """The answer to each, by name, or the error that it raised.

    The threads begin and end with the call: a process that forks or exits leaves none behind.
    """
    heard: dict[str, T | BaseException] = {}

    def ask(name: str, question: Callable[[], T]) -> None:
        try:
            heard[name] = question()
        except BaseException as error:
            heard[name] = error

    (here, question), *rest = questions.items()
    threads = [
        threading.Thread(
            target=copy_context().run,
            args=(ask, *each),
            name=f"penstock-shard-{each[0]}-asked",
            daemon=True,
        )
        for each in rest
    ]
    for thread in threads:
        thread.start()
    try:
        heard[here] = question()
    except Exception as error:  # an interrupt of this thread does not wait for the others
        heard[here] = error
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
    return heard
