"""An error that is raised in a thread from outside, and taken back when it came too late."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from penstock.errors import JobTimeout
from penstock.worker.interrupt import forget, interrupt

TRACED = """
import sys
from penstock.worker.interrupt import forget

def called():
    return 1

forget()
sys.settrace(lambda *_: None)
print(called())
"""


def test_an_error_is_raised_at_the_next_instruction():
    with pytest.raises(JobTimeout):
        _interrupt_oneself()


def test_after_an_error_was_taken_back_python_can_be_traced():
    """As coverage and debuggers do: it hung for ever in a flag that nobody took down."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "1\n", done.stderr


def test_nothing_is_raised_after_it_was_taken_back():
    """Whatever came just before: what is raised in between is that error itself."""
    raised = 0
    for _ in range(1000):
        asked, told = threading.Event(), threading.Event()
        late = threading.Thread(target=_interrupt_late, args=(threading.get_ident(), asked, told))
        late.start()
        try:
            asked.set()
            told.wait()
        except JobTimeout:
            raised += 1
        while True:
            try:
                late.join()
                forget()
                break
            except JobTimeout:
                raised += 1
        called = [sum(range(10)) for _ in range(100)]
        assert len(called) == 100
    assert raised <= 1000


def _interrupt_oneself() -> None:
    interrupt(threading.get_ident(), "timeout")
    while True:
        pass


def _interrupt_late(thread: int, asked: threading.Event, told: threading.Event) -> None:
    asked.wait()
    interrupt(thread, "timeout")
    told.set()
