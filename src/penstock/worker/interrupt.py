"""Raising an exception in another thread: the only way to end Python code that does not look.

It arrives between two instructions of that thread, never inside a C call: one that waits for
another process says how to end that with `also_interrupt`, and is interrupted when that answers:
cut off in the middle, it would take the answer to this question for that to the next. What was
raised too late is taken back with `forget`, by the thread itself.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from penstock.errors import JobInterrupted, JobTimeout


class Cancelled(JobInterrupted):
    """Somebody cancelled the job."""

    def __init__(self) -> None:  # raised by its class alone, from another thread
        super().__init__("cancelled")


class Shutdown(JobInterrupted):
    """The worker must stop now."""

    def __init__(self) -> None:
        super().__init__("shutdown")


ERRORS: dict[str, type[BaseException]] = {
    "timeout": JobTimeout,
    "cancelled": Cancelled,
    "shutdown": Shutdown,
}


class _Beside(NamedTuple):
    end: Callable[[], None]
    package: str


_beside: dict[int, _Beside] = {}


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in this thread, at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def interrupt(thread: int, verdict: str) -> None:
    """Raise the verdict's error in this thread, at its next instruction."""
    raise_in(thread, ERRORS[verdict])
    if (beside := _beside.get(thread)) is not None:
        # It asks another process, and whoever interrupts has others to look after.
        threading.Thread(target=beside.end, name="penstock-interrupt", daemon=True).start()


@contextmanager
def also_interrupt(end: Callable[[], None], package: str) -> Generator[None]:
    """Have `end` called too, from another thread, when this one is interrupted in this block.

    `package` is the code that waits for the other process, and must not be cut off there.
    """
    thread = threading.get_ident()
    _beside[thread] = _Beside(end, package)
    try:
        yield
    finally:
        _beside.pop(thread, None)


def waits_beside(thread: int, frame: FrameType | None = None) -> bool:
    """Whether this thread waits for another process, in code that must not be cut off there."""
    beside = _beside.get(thread)
    if beside is None:
        return False
    frame = frame or sys._current_frames().get(thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know
    # From None it would walk up from here, and a thread that has just ended has no frame.
    stack = () if frame is None else traceback.walk_stack(frame)
    names = (each.f_globals.get("__name__", "") for each, _ in stack)
    return any(name.partition(".")[0] == beside.package for name in names)


def forget(thread: int) -> None:
    """Take back what was raised and has not arrived."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
