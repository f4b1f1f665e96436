"""Wake: whoever waits in this process goes on, and a wake is never lost."""

from __future__ import annotations

import os
import signal
import threading
import time

from penstock.testing.conformance.core.test_wait import LONG, hinted_by, quiet


def test_a_wake_ends_a_wait(broker):
    assert hinted_by(broker, broker.wake)


def test_a_wake_that_nobody_waits_for_ends_the_next_wait(broker):
    quiet(broker)
    broker.wake()
    began = time.monotonic()

    assert broker.wait(None, LONG) is True

    assert time.monotonic() - began < LONG / 2


def test_a_wake_before_the_first_wait_of_a_thread_is_not_lost(broker):
    broker.wake()
    answers = []

    thread = threading.Thread(target=lambda: answers.append(broker.wait(None, LONG)))
    thread.start()
    thread.join(LONG / 2)

    assert answers == [True]


def test_a_wake_ends_every_wait(broker):
    answers = []
    ready = threading.Barrier(4)

    def listen():
        quiet(broker)
        ready.wait()
        answers.append(broker.wait(None, LONG))

    threads = [threading.Thread(target=listen) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    broker.wake()
    for thread in threads:
        thread.join(LONG / 2)

    assert answers == [True, True, True]


def test_a_signal_handler_may_wake(broker):
    """D56: shutdown is noticed at once."""
    quiet(broker)
    before = signal.signal(signal.SIGUSR1, lambda *_: broker.wake())
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        assert broker.wait(None, LONG) is True
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
