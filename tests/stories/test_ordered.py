"""Order per key holds over many processes, some of which are killed: swept afterwards."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest

from penstock import State
from penstock.rules.rule import Rule, RuleKind
from tests.stories.conftest import Story, eventually

KEYS = ("ada", "bob", "cy", "di", "eve", "fay")


class Orders:
    """A program that hands over jobs of several tasks, one after the other, key by key."""

    def __init__(self, story: Story, count: int, seed: int) -> None:
        self._story = story
        self._count = count
        self._chance = random.Random(seed)
        self.keys: dict[int, str] = {}  # of each job, by its number
        self.handles: list[Any] = []
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        chance = self._chance
        while len(self.keys) < self._count:
            for _ in range(20):
                number = len(self.keys)
                self.keys[number] = key = chance.choice(KEYS)
                name = chance.choice(["nap", "nap", "nap", "nap_async", "nap_async", "stumble"])
                task = self._story.task(name).options(key=key, priority=chance.choice([0, 0, 5]))
                nap = () if name == "stumble" else (chance.choice([0.0, 0.0, 0.02]),)
                self.handles.append(task.enqueue(number, *nap))
            time.sleep(0.05)

    def sent(self) -> list[Any]:
        self._thread.join(120)
        return self.handles


def kill_children(story: Story, seconds: float, seed: int) -> int:
    chance, killed = random.Random(seed), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.2, 0.6))
        if children := chance.choice(story.fleets).children():
            with suppress(ProcessLookupError):
                os.kill(chance.choice(children), signal.SIGKILL)
                killed += 1
    return killed


def end_of(story: Story, handles: list[Any], policy: str) -> None:
    """Drain; under wait, whatever failed is retried until nothing keeps its key back."""
    for _ in range(20):
        calm = story.start(lease=1.0, processes=2, threads=4, drain=True)
        assert calm.wait(90) == 0, calm.output()
        failed = [handle.id for handle in handles if handle.state() is State.FAILED]
        if policy == "skip" or not failed:
            return
        story.broker.act("retry", failed)
    raise AssertionError("jobs failed again and again")


def violations(story: Story, keys: dict[int, str]) -> list[str]:
    """Starts out of order, by the ledger; and attempts that ran together, by the history."""
    found: list[str] = []
    last: defaultdict[str, int] = defaultdict(lambda: -1)
    for word, number, _, at in story.ledger():
        key = keys[int(number)]
        if int(number) < last[key]:
            found.append(f"{word} {number} began at {at}, after {last[key]} of {key}")
        last[key] = int(number)
    ended: dict[str, tuple[str, float]] = {}
    for event in story.attempts():
        assert event.key
        assert event.job
        job, at = ended.get(event.key, ("", 0.0))
        if event.job < job:
            found.append(f"{event.job} ended after {job} of {event.key}")
        if event.started_at is not None and event.started_at < at:
            found.append(f"{event.job} began at {event.started_at}, and {job} ended at {at}")
        ended[event.key] = event.job, event.at
    return found


def sweep(story: Story, policy: str, seconds: float, count: int, seed: int) -> None:
    story.broker.put(Rule(RuleKind.ORDER, queue="default", policy=policy))
    for _ in range(3):
        story.start(lease=1.0, processes=2, threads=4, grace=2.0)
    eventually(lambda: all(fleet.children() for fleet in story.fleets))
    orders = Orders(story, count, seed)
    killed = kill_children(story, seconds, seed)
    for fleet in story.fleets:
        fleet.signal(signal.SIGTERM)
        fleet.wait()

    handles = orders.sent()
    end_of(story, handles, policy)

    assert killed
    assert violations(story, orders.keys) == []
    states = story.states(handles)
    assert states[State.SUCCEEDED] + states[State.FAILED] == count, states
    assert policy == "skip" or states[State.SUCCEEDED] == count
    assert set(story.successes().values()) == {1}


@pytest.mark.parametrize("policy", ["wait", "skip"])
def test_no_job_starts_before_the_one_before_it_has_ended(story: Story, policy: str):
    """V44, V45, A49: tasks, priorities, retries and kills mixed: 0 violations in the history."""
    sweep(story, policy, seconds=3, count=160, seed=4)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", ["wait", "skip"])
@pytest.mark.parametrize("seed", range(3))
def test_no_job_starts_before_the_one_before_it_has_ended_for_long(
    story: Story, policy: str, seed: int
):
    sweep(story, policy, seconds=60, count=6_000, seed=seed)


def test_a_stuck_head_is_ended_by_its_timeout_and_the_next_one_starts(story: Story):
    """V45: with skip the queue goes on after the timeout of the head."""
    story.broker.put(Rule(RuleKind.ORDER, queue="default", policy="skip"))
    stuck = story.task("sleep_for_ever").options(key="ada").enqueue()
    following = story.task("nap").options(key="ada").enqueue(1)

    story.start(threads=4)

    eventually(lambda: following.state() is State.SUCCEEDED)
    assert stuck.state() is State.FAILED
    assert [line[0] for line in story.ledger()] == ["sleep_for_ever", "nap"]


def test_a_tenant_s_single_job_does_not_wait_for_anothers_backlog(story: Story):
    """D64: it starts among the first, whatever is before it."""
    nap = story.task("nap")
    story.broker.put(Rule(RuleKind.ORDER, queue="default", policy="fair"))
    nap.options(key="ada").enqueue_many([(n, 0.05) for n in range(1, 2001)])
    story.start(threads=2)
    eventually(lambda: story.ledger("nap"))

    assert nap.options(key="bob").enqueue(0).result(timeout=60) == 0

    started = [line[1] for line in story.ledger("nap")]
    assert len(started) < 2001  # the backlog is still there
    assert nap.options(key="bob").enqueue(-1).result(timeout=60) == -1
