"""Everything at once: children and supervisors killed, frozen and drained at random, under load."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock import State
from tests.stories.conftest import Fleet, Story, alive, eventually


class Storm:
    """Does something bad to a fleet, again and again; counts what it did."""

    def __init__(self, story: Story, seed: int) -> None:
        self.random = random.Random(seed)
        self.did: Counter[str] = Counter()
        self._story = story
        self.fleet = self._start()

    def _start(self) -> Fleet:
        return self._story.start(lease=1.0, grace=2.0, processes=2)

    def strike(self) -> None:
        chances: list[tuple[Callable[[], None], int]] = [
            (self._kill_child, 5),
            (self._kill_supervisor, 2),
            (self._restart, 1),
            (self._freeze, 1),
        ]
        acts, weights = zip(*chances, strict=True)
        [act] = self.random.choices(acts, weights)
        with suppress(ProcessLookupError):
            act()
            self.did[act.__name__] += 1

    def _kill_child(self) -> None:
        if children := self.fleet.children():
            os.kill(self.random.choice(children), signal.SIGKILL)

    def _kill_supervisor(self) -> None:
        self.fleet.signal(signal.SIGKILL)
        self.fleet.wait()
        self.fleet = self._start()

    def _restart(self) -> None:
        self.end()
        self.fleet = self._start()

    def end(self) -> None:
        """Drain the fleet, as a deploy does."""
        self.fleet.signal(signal.SIGTERM)
        # It may have been so young that it did not listen yet.
        assert self.fleet.wait() in {0, -signal.SIGTERM}, self.fleet.output()

    def _freeze(self) -> None:
        frozen = [self.fleet.pid, *self.fleet.children()]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.6)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def weather(story: Story, seed: int, seconds: float, count: int) -> None:
    chance = random.Random(seed)
    jobs = [
        story.task(chance.choice(["nap", "nap_async"])).job(
            n, chance.choice([0, 0, 0.01, 0.05, 0.2])
        )
        for n in range(count)
    ]
    jobs += [story.task("crunch").job(n) for n in range(count // 50)]
    handles = story.app.enqueue(jobs)
    storm = Storm(story, seed)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(storm.random.uniform(0.2, 0.8))
        storm.strike()
    storm.end()

    calm = story.start(lease=1.0, processes=2, drain=True)

    assert calm.wait(60 + count / 100) == 0, calm.output()
    assert storm.did["_kill_child"], f"no storm: {storm.did}"
    states = story.states(handles)
    # An innocent may stand beside three kills: it is failed then, never lost.
    assert states[State.SUCCEEDED] + states[State.FAILED] == len(handles), states
    assert set(story.successes().values()) == {1}
    assert set(story.counted()) <= {"crashed"}
    pids = {int(line[2]) for line in story.ledger()}
    eventually(lambda: not any(alive(pid) for pid in pids), what="processes are left")


def test_nothing_is_lost_and_nothing_settled_twice_in_a_storm(story: Story):
    weather(story, seed=7, seconds=5, count=1500)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_and_nothing_settled_twice_in_a_long_storm(story: Story, seed: int):
    weather(story, seed=seed, seconds=120, count=40_000)
