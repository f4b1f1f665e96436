"""Raising an exception in another thread: the only way to end Python code that does not look.

It arrives between two instructions of that thread, never inside a C call: one that waits for
another process says how to end that with `also_interrupt`. What was raised too late is taken back
with `forget`, by the thread itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

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


_beside: dict[int, Callable[[], None]] = {}


def interrupt(thread: int, verdict: str) -> None:
    """Raise the verdict's error in this thread, at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(ERRORS[verdict])
    )
    if (end := _beside.get(thread)) is not None:
        # It asks another process, and whoever interrupts has others to look after.
        threading.Thread(target=end, name="penstock-interrupt", daemon=True).start()


@contextmanager
def also_interrupt(end: Callable[[], None]) -> Generator[None]:
    """Have `end` called too, from another thread, when this one is interrupted in this block."""
    thread = threading.get_ident()
    _beside[thread] = end
    try:
        yield
    finally:
        _beside.pop(thread, None)


def forget(thread: int) -> None:
    """Take back what was raised and has not arrived."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
