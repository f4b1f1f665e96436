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
from penstock.broker.views import Event
from penstock.rules.rule import Rule, RuleKind
from tests.stories.conftest import Story

LIMIT = RuleKind.LIMIT


def crowd(spans: Sequence[tuple[float, float, object]]) -> list[object]:
    """Those of the spans (from, to, what) that were under way at the fullest instant."""
    under_way: list[object] = []
    fullest: list[object] = []
    spans = [span for span in spans if span[0] < span[1]]
    steps = [(start, 1, what) for start, _, what in spans]
    steps += [(end, -1, what) for _, end, what in spans]
    for _, step, what in sorted(steps, key=lambda each: each[:2]):  # an end before a start
        under_way.append(what) if step > 0 else under_way.remove(what)
        if len(under_way) > len(fullest):
            fullest = list(under_way)
    return fullest


def on_record(attempts: Sequence[Event], tolerance: float) -> list[object]:
    """The most attempts at one instant, as the history has it."""
    return crowd(
        [
            (
                event.started_at or 0.0,
                event.at - tolerance,
                (event.job, event.attempt, event.worker, event.started_at, event.at, event.reason),
            )
            for event in attempts
        ]
    )


def in_truth(story: Story, numbers: set[int]) -> list[object]:
    """The most calls of these jobs at one instant, by the one clock of this machine."""
    began = {(line[1], line[-2]): float(line[-1]) for line in story.ledger("asleep")}
    return crowd(
        [
            (began[line[1], line[-2]], float(line[-1]), (line[1], line[-2]))
            for line in story.ledger("awake")
            if int(line[1]) in numbers
        ]
    )


def tolerance_of(url: str) -> float:
    """Two processes know the time of a server to half a round trip."""
    return 0.02 if url.startswith("postgresql") else 0.0


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
        for rule in story.broker.records(Rule):
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
    story.broker.put(Rule(LIMIT, queue="default", running=5))
    story.broker.put(Rule(LIMIT, queue="default", running=2, per_key=True))
    nap, chance = story.task("nap_and_wake"), random.Random(seed)
    keys = [chance.choice([None, None, "ada", "bob", "eve"]) for _ in range(count)]
    handles = story.app.enqueue(
        [
            nap.options(key=key).job(n, chance.choice([0.0, 0.01, 0.05]))
            for n, key in enumerate(keys)
        ]
    )

    attempts = run_to_the_end(story, seconds, seed)

    tolerance = tolerance_of(story.url)
    calls = Counter(event.job for event in attempts)
    once = {n for n, handle in enumerate(handles) if calls[handle.id] == 1}  # no lease lapsed
    for most, key in ((5, None), (2, "ada"), (2, "bob"), (2, "eve")):
        here = in_truth(story, {n for n in once if key in {None, keys[n]}})
        assert len(here) <= most, here
        noted = on_record([event for event in attempts if key in {None, event.key}], tolerance)
        assert len(noted) <= most, noted
    states = story.states(handles)
    assert states[State.SUCCEEDED] + states[State.FAILED] == count, states
    assert set(story.successes().values()) == {1}


def sweep_rate(story: Story, seconds: float, count: int, seed: int) -> None:
    story.broker.put(Rule(LIMIT, task="nap", rate=(20, 0.5)))
    handles = story.app.enqueue([story.task("nap").job(n) for n in range(count)])

    attempts = run_to_the_end(story, seconds, seed)

    assert most_in_a_window(attempts, 0.5 - tolerance_of(story.url)) <= 20
    states = story.states(handles)
    assert states[State.SUCCEEDED] + states[State.FAILED] == count, states
    assert set(Counter(story.successes()).values()) == {1}


def test_never_more_run_than_the_limits_say(story: Story):
    """V26, G31."""
    sweep_running(story, seconds=3, count=250, seed=1)


# REQUIREMENTS S15
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
