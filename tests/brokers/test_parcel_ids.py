"""The ids of a parcel: all of them, whoever else in this process asks for the first time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.brokers.tables import rows

FIRST = bytes(14) + b"\xf0\x00"
THREADS = 8


@pytest.fixture
def _turns_change_at_once() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_turns_change_at_once")
def test_threads_that_ask_at_the_same_time_are_given_all_of_them():
    """A claim that was given fewer took a parcel away with jobs that nobody held."""
    rows._tails.cache_clear()
    start = threading.Barrier(THREADS)
    given: list[list[bytes]] = []

    def ask() -> None:
        start.wait()
        given.append(rows.ids_after(FIRST, 3))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert given == [[FIRST[:15] + bytes([number]) for number in range(3)]] * THREADS
