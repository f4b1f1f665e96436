"""Raises an exception in another thread: the only way to end Python code that does not cooperate.

It is raised between two instructions of that thread, never inside a C call. Code that waits for
another process (Spark's JVM) registers with `also_interrupt` how to end the wait there: cut off in
the middle of a request, it would take the late answer for the answer to its next request. What was
raised too late is withdrawn with `forget`, by the thread itself.
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
    """The worker has to stop now."""

    def __init__(self) -> None:
        super().__init__("shutdown")


ERRORS: dict[str, type[BaseException]] = {
    "timeout": JobTimeout,
    "cancelled": Cancelled,
    "shutdown": Shutdown,
}


class _OtherProcess(NamedTuple):
    end: Callable[[], object]
    package: str


_waiting: dict[int, _OtherProcess] = {}


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in this thread, at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def interrupt(thread: int, reason: str) -> None:
    """Raise the error for this reason in a thread, at its next instruction."""
    raise_in(thread, ERRORS[reason])
    if (other := _waiting.get(thread)) is not None:
        # On a thread of its own: it waits for the other process, and the caller must not.
        threading.Thread(target=other.end, name="penstock-interrupt", daemon=True).start()


@contextmanager
def also_interrupt(end: Callable[[], object], package: str) -> Generator[None]:
    """If this thread is interrupted inside the block, also call `end`, on another thread.

    `package` is the library that waits for the other process, and must not be cut off there.
    """
    thread = threading.get_ident()
    _waiting[thread] = _OtherProcess(end, package)
    try:
        yield
    finally:
        _waiting.pop(thread, None)


def waits_for_other_process(thread: int, frame: FrameType | None = None) -> bool:
    """Whether this thread is inside the package of its `also_interrupt` block."""
    other = _waiting.get(thread)
    if other is None:
        return False
    frame = frame or sys._current_frames().get(thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know
    # A thread that has just ended has no frame, and walk_stack(None) would walk this thread's.
    stack = () if frame is None else traceback.walk_stack(frame)
    names = (frame.f_globals.get("__name__", "") for frame, _ in stack)
    return any(name.partition(".")[0] == other.package for name in names)


class _Withdrawn(BaseException):
    """Takes the place of an error that came too late."""


def forget() -> None:
    """Withdraw an error that was set for the calling thread and has not been raised yet.

    Another takes its place, and is caught here. Set to nothing, Python up to 3.12 would never learn
    that nothing is left to be raised: slower from then on, and hanging once it is traced.
    """
    try:
        raise_in(threading.get_ident(), _Withdrawn)
        while True:
            pass  # raised after some instructions
    except _Withdrawn:
        return
