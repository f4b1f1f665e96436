"""Limits hold over many workers in many processes, some of which are killed: swept afterwards."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from penstock import State
from penstock.rule import Rule, RuleKind
from penstock.views import Event
from tests.stories.conftest import Story

LIMIT = RuleKind.LIMIT


def most_at_once(attempts: Sequence[Event], tolerance: float) -> int:
    """The most attempts that ran at one instant.

    Two processes know the time of a server to half a round trip, which on a busy machine may be
    long: so much before its end nothing is counted as running.
    """
    steps = [(event.started_at or 0.0, 1) for event in attempts]
    steps += [(max(event.at - tolerance, event.started_at or 0.0), -1) for event in attempts]
    most = running = 0
    for _, step in sorted(steps):  # an end before a start of the same moment
        running += step
        most = max(most, running)
    return most


def tolerance_of(url: str) -> float:
    return 0.05 if url.startswith("postgresql") else 0.0


def most_in_a_window(attempts: Sequence[Event], seconds: float) -> int:
    """The most starts in any window of this length, wherever it begins."""
    starts = sorted(event.started_at or 0.0 for event in attempts)
    most = first = 0
    for last, at in enumerate(starts):
        while at - starts[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def kill_now_and_then(story: Story, seconds: float, seed: int) -> int:
    """Kill children of the fleets, and one of the fleets with its supervisor."""
    chance, killed, most = random.Random(seed), 0, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        next_at = time.monotonic() + chance.uniform(0.2, 0.6)
        while time.monotonic() < next_at:
            running = sum(count.running for count in story.broker.count())
            most = max(most, running)
            time.sleep(0.02)
        for rule in story.broker.rules():
            assert rule.per_key or rule.running is None or most <= rule.running, "as leases count"
        fleet = chance.choice(story.fleets)
        if children := fleet.children():
            with suppress(ProcessLookupError):
                os.kill(chance.choice(children), signal.SIGKILL)
                killed += 1
    fleet = story.fleets[0]
    for pid in (fleet.pid, *fleet.children()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    fleet.wait()
    return killed


def run_to_the_end(story: Story, seconds: float, seed: int) -> list[Event]:
    """Workers in three fleets, with kills, then one that drains; every attempt of all of them."""
    for _ in range(3):
        story.start(lease=1.0, processes=2, threads=4, grace=2.0)
    killed = kill_now_and_then(story, seconds, seed)
    for fleet in story.fleets[1:]:
        fleet.signal(signal.SIGTERM)
        fleet.wait()
    calm = story.start(lease=1.0, processes=2, threads=4, drain=True)
    assert calm.wait(60 + 3 * seconds) == 0, calm.output()
    assert killed
    return story.attempts()


def sweep_running(story: Story, seconds: float, count: int, seed: int) -> None:
    story.broker.set_rule(Rule(LIMIT, queue="default", running=5))
    story.broker.set_rule(Rule(LIMIT, queue="default", running=2, per_key=True))
    nap, chance = story.task("nap"), random.Random(seed)
    keys = [None, None, "ada", "bob", "eve"]
    handles = story.app.enqueue(
        [
            nap.options(key=chance.choice(keys)).job(n, chance.choice([0.0, 0.01, 0.15]))
            for n in range(count)
        ]
    )

    attempts = run_to_the_end(story, seconds, seed)

    tolerance = tolerance_of(story.url)
    assert most_at_once(attempts, tolerance) <= 5
    for key in ("ada", "bob", "eve"):
        assert most_at_once([event for event in attempts if event.key == key], tolerance) <= 2
    states = story.states(handles)
    assert states[State.SUCCEEDED] + states[State.FAILED] == count, states
    assert set(story.successes().values()) == {1}


def sweep_rate(story: Story, seconds: float, count: int, seed: int) -> None:
    story.broker.set_rule(Rule(LIMIT, task="nap", rate=(20, 0.5)))
    handles = story.app.enqueue([story.task("nap").job(n) for n in range(count)])

    attempts = run_to_the_end(story, seconds, seed)

    assert most_in_a_window(attempts, 0.5 - tolerance_of(story.url)) <= 20
    states = story.states(handles)
    assert states[State.SUCCEEDED] + states[State.FAILED] == count, states
    assert set(Counter(story.successes()).values()) == {1}


def test_never_more_run_than_the_limits_say(story: Story):
    """V26, G31."""
    sweep_running(story, seconds=3, count=250, seed=1)


def test_never_more_start_in_any_window_than_the_rate_says(story: Story):
    """V25, G31, G40."""
    sweep_rate(story, seconds=3, count=200, seed=2)


def test_ten_a_second_is_ten_a_second(story: Story):
    """V25: 100 due, 10/s: 9.9 s, and hardly more: whoever waits is told when to look."""
    story.app.limit("default", rate="10/s")
    story.app.enqueue([story.task("nap").job(n) for n in range(100)])

    fleet = story.start(processes=2, threads=10, drain=True)
    assert fleet.wait(100) == 0, fleet.output()

    starts = sorted(event.started_at or 0.0 for event in story.attempts())
    assert len(starts) == 100
    assert starts[-1] - starts[0] >= 9.8
    assert most_in_a_window(story.attempts(), 1.0 - tolerance_of(story.url)) <= 10


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_never_more_run_than_the_limits_say_for_long(story: Story, seed: int):
    sweep_running(story, seconds=60, count=8_000, seed=seed)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_never_more_start_in_any_window_than_the_rate_says_for_long(story: Story, seed: int):
    sweep_rate(story, seconds=60, count=4_000, seed=seed)
