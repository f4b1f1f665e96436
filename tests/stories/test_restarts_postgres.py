"""PostgreSQL restarted and killed under load: nothing lost, nothing settled twice, on it goes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

import pytest

from penstock import App, State, StoreUnreachable
from penstock.broker.views import WorkerRow
from penstock.job import succeeded
from penstock.testing.conformance.factories import claim_for
from penstock.testing.postgres import Server
from tests.stories.conftest import Load, Story, eventually


class Speed:
    """Jobs per second, from the lines of the ledger."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def since(self, moment: float) -> float:
        now = time.monotonic()
        started = [float(line[-1]) for line in self._story.ledger("nap")]
        return sum(at >= moment for at in started) / (now - moment)

    def back_to(self, wanted: float, longest: float) -> float:
        """How long it takes until half a second has this speed again; `longest` if it has not."""
        began = time.monotonic()
        with suppress(AssertionError):
            eventually(lambda: self.since(time.monotonic() - 0.5) >= wanted, longest)
        return time.monotonic() - began


def restart_under_load(
    story: Story, server: Server, times: int, every: float, *, hard: bool
) -> None:
    fleet = story.start(processes=2, lease=15.0)
    load = Load(story)
    speed = Speed(story)
    eventually(lambda: len(story.ledger()) > 100)
    # What had gathered before the workers came is no usual speed.
    eventually(lambda: sum(count.ready for count in story.broker.count()) < 100)
    time.sleep(2.0)
    usual = speed.since(time.monotonic() - 2.0)
    back: list[float] = []
    whole: list[float] = []
    for _ in range(times):
        next_at = time.monotonic() + every
        server.kill() if hard else server.stop()
        server.start()
        before = len(story.ledger("nap"))
        eventually(lambda before=before: len(story.ledger("nap")) > before + 100)
        back.append(speed.back_to(usual / 2, longest=every))
        left = max(0.0, next_at - time.monotonic())
        whole.append(back[-1] + speed.back_to(0.9 * usual, longest=left))
        time.sleep(max(0.0, next_at - time.monotonic()))
    accepted = load.stop()
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0, timeout=60)

    print(
        f"{len(accepted)} jobs, {usual:.0f}/s; half of it again after",
        ", ".join(f"{seconds:.1f} s" for seconds in back),
        "and nine tenths after",
        ", ".join(f"{seconds:.1f} s" for seconds in whole),
        f"; {load.unknown} answers lost, {load.refused} calls refused",
    )
    successes = story.successes()
    assert set(accepted) == set(successes)
    assert set(successes.values()) == {1}
    assert story.counted() == {}
    # A claim that a crash took back is made again: only then may a job have begun twice.
    starts = Counter(line[1] for line in story.ledger("nap"))
    assert set(starts.values()) == {1} or hard
    assert fleet.process.poll() is None
    assert fleet.said_unanswered() <= 1 + times * every / 60, fleet.output()


def test_postgres_restarted_twice_in_six_seconds(own_story, own_postgres):
    restart_under_load(own_story, own_postgres, times=2, every=3.0, hard=False)


@pytest.mark.soak
def test_postgres_restarted_five_times_in_a_minute(own_story, own_postgres):
    restart_under_load(own_story, own_postgres, times=5, every=12.0, hard=False)


@pytest.mark.soak
def test_postgres_killed_ten_times_under_load(own_story, own_postgres):
    restart_under_load(own_story, own_postgres, times=10, every=8.0, hard=True)


class Observer:
    """Works by hand, and remembers whose end the store has confirmed."""

    def __init__(self, url: str, name: str) -> None:
        self.ended: set[str] = set()
        self.again: list[str] = []  # ran although its end had been confirmed
        self.claimed: dict[str, float] = {}
        self._app = App(url)
        self._broker = self._app.broker
        self._row = WorkerRow(id=name, tasks={"nap": 1})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        broker = self._broker
        while not self._over.is_set():
            with suppress(StoreUnreachable):
                broker.renew([self._row], holding=())
                while jobs := claim_for(broker, self._row, limit=7):
                    self.again += [job.id for job in jobs if job.id in self.ended]
                    self.claimed |= dict.fromkeys([job.id for job in jobs], time.monotonic())
                    pairs = [(job, succeeded(b"1")) for job in jobs]
                    taken = broker.settle(pairs)
                    self.ended |= {job.id for job, ok in zip(jobs, taken, strict=True) if ok}
                    if self._over.is_set():
                        break
            time.sleep(0.02)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(40)
        self._app.close()


def test_no_job_whose_end_was_observed_runs_again_after_the_server_was_killed(
    own_story, own_postgres
):
    observe_through_kills(own_story, own_postgres, kills=3)


@pytest.mark.soak
def test_no_job_whose_end_was_observed_runs_again_after_many_kills(own_story, own_postgres):
    observe_through_kills(own_story, own_postgres, kills=40)


def observe_through_kills(story: Story, server: Server, kills: int) -> None:
    """V7: what was acknowledged as done is done, and what was accepted is there."""
    load = Load(story, pause=0.005)
    observers = [Observer(story.url, f"observer-{number}") for number in range(2)]
    seen: dict[str, float] = {}  # by somebody who asked for their results
    for turn in range(kills):
        time.sleep(0.5 + 0.13 * (turn % 5))
        handles = [story.app.handle(id) for id in load.accepted[-2000:-1900]]
        with suppress(StoreUnreachable):
            ids = [handle.id for handle in handles if handle.state() is State.SUCCEEDED]
            seen |= dict.fromkeys(ids, time.monotonic())
        server.kill()
        server.start()
    accepted = load.stop()
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0, timeout=60)
    for observer in observers:
        observer.stop()

    ended = observers[0].ended | observers[1].ended
    assert not [
        id for observer in observers for id, at in observer.claimed.items() if at > seen.get(id, at)
    ]
    assert not observers[0].ended & observers[1].ended
    assert observers[0].again == observers[1].again == []
    successes = story.successes()
    assert set(successes) == set(accepted)
    assert set(successes.values()) == {1}
    assert ended | set(seen) <= set(successes)
    assert len(ended) > 100  # else nothing was under way when the server was killed
