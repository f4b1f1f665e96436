"""A share of a store: looks rest when they asked for more than that, and none waits for itself."""

from __future__ import annotations

import threading

import pytest

from penstock.broker.read_budget import (
    AT_ONCE,
    LONGEST_REST,
    SAVED_SECONDS,
    SHARE,
    Share,
    current_share,
)


class Time:
    """Passes while a look takes, and while one rests."""

    def __init__(self):
        self.now = 100.0
        self.rested = 0.0

    def sleep(self, seconds):
        self.now += seconds
        self.rested += seconds


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def share(time):
    return Share(lambda: time.now, time.sleep)


def look(share, time, seconds):
    with share.look() as spent:
        time.now += seconds
        spent.seconds += seconds


def test_the_first_looks_do_not_wait(share, time):
    while time.now < 100.0 + SAVED_SECONDS:
        look(share, time, 0.01)

    assert time.rested == 0.0


@pytest.mark.parametrize("seconds", [0.001, 0.01, 0.2])
def test_whoever_asks_without_a_pause_gets_the_share_and_no_more(share, time, seconds):
    asked = 0.0
    while time.now < 200.0:
        look(share, time, seconds)
        asked += seconds

    assert asked <= SHARE * 100.0 + SAVED_SECONDS + 2 * seconds
    assert asked >= 0.9 * SHARE * 100.0


def test_whoever_asks_for_less_never_waits(share, time):
    for _ in range(200):
        look(share, time, 0.01)
        time.now += 0.01 / SHARE

    assert time.rested == 0.0


def test_a_long_question_is_followed_by_a_bounded_rest(share, time):
    look(share, time, 60.0)

    look(share, time, 0.01)

    assert time.rested <= LONGEST_REST


def test_so_many_look_at_once_and_the_others_wait(share):
    inside, over, most = [], threading.Event(), threading.Semaphore(0)

    def look_long():
        with share.look():
            inside.append(1)
            most.release()
            over.wait(30)

    threads = [threading.Thread(target=look_long) for _ in range(AT_ONCE + 2)]
    for thread in threads:
        thread.start()
    for _ in range(AT_ONCE):
        assert most.acquire(timeout=30)
    assert not most.acquire(blocking=False)
    over.set()
    for thread in threads:
        thread.join(30)

    assert len(inside) == AT_ONCE + 2


def test_a_share_is_of_the_thread_that_has_it(share):
    seen = []
    with share.within():
        assert current_share.get() is share
        thread = threading.Thread(target=lambda: seen.append(current_share.get()))
        thread.start()
        thread.join(30)
        with share.look():
            assert current_share.get() is None

    assert seen == [None]
    assert current_share.get() is None
