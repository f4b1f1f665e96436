"""Forks wait until no call is under way: gRPC expects one only while no thread is inside of it.

A fork in mid-call would leave the child with locks of gRPC that nobody there lets go. Calls that
begin meanwhile wait for the fork, which takes milliseconds.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

WAIT_SECONDS = 5.0  # a fork goes on then; a child that has no use for gRPC is not harmed


class Interruptible(Protocol):
    """A call without an end of its own."""

    def interrupt(self) -> None: ...


class CallsUnderWay:
    """How many threads of this process are in a call; a fork waits until there are none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls = 0
        self._forks = 0
        self._inside = threading.local()  # whether this thread is in a call already
        # What ends calls that would go on for long; called before a fork.
        self.interrupts: weakref.WeakSet[Interruptible] = weakref.WeakSet()

    @contextmanager
    def one(self) -> Generator[None]:
        if getattr(self._inside, "call", False):
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._forks, WAIT_SECONDS)
            self._calls += 1
        self._inside.call = True
        try:
            yield
        finally:
            self._inside.call = False
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        with self._changed:
            self._forks += 1
        for each in list(self.interrupts):
            each.interrupt()
        with self._changed:
            self._changed.wait_for(lambda: not self._calls, WAIT_SECONDS)

    def after_fork_in_parent(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition()
        self._inside = threading.local()
        self._calls = self._forks = 0


calls_under_way = CallsUnderWay()
_registering = threading.Lock()
_registered = False


def grpc_for_clients() -> Any:
    """The module grpc, told to expect forks."""
    global _registered  # noqa: PLW0603  one process, one registration
    # Both are read when it is imported first. Its own log lines say what its errors say.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    grpc: Any = import_module("grpc")
    with _registering:
        if not _registered:
            _registered = True
            # After the import: what is registered last is called first before a fork.
            os.register_at_fork(
                before=calls_under_way.before_fork,
                after_in_parent=calls_under_way.after_fork_in_parent,
                after_in_child=calls_under_way.after_fork_in_child,
            )
    return grpc
