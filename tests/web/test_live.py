"""Live: one look a second for all who watch, none when nobody does, and an end."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

import pytest

from penstock.broker.protocol import Broker
from penstock.brokers.memory import MemoryBroker
from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import begun, claim, end_all, settle, some_jobs
from penstock.web import dashboard
from penstock.web.access import Person, Role
from penstock.web.checked_store import CheckedStore
from penstock.web.live import MOST_BEHIND, MOST_OF_A_LOGIN, MOST_STREAMS
from tests.web.conftest import Web


def messages(answer):
    """The ticks of a stream, message by message."""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_numbers_move_as_jobs_end(web: Web, broker, clock):
    broker.enqueue(some_jobs(clock, 10))
    client = web.client(Role.VIEW)

    with client.stream("GET", "/live") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = messages(answer)
        assert next(told) == []
        [first] = next(told)
        for job, outcome in zip(claim(broker, 3), (succeeded, succeeded, failed), strict=True):
            said = outcome("no") if outcome is failed else outcome(b"1")
            settle(broker, job, begun(said, clock.now()))
        ticks = [first]
        while sum(tick["succeeded"] + tick["failed"] for tick in ticks) < 3:
            ticks += next(told)

    assert (first["places"]["ready"], first["places"]["failed"]) == (10, 0)
    assert (ticks[-1]["places"]["ready"], ticks[-1]["places"]["failed"]) == (7, 1)
    assert sum(tick["succeeded"] for tick in ticks) == 2
    assert ticks[-1]["queues"][0][0] == "default"


def test_who_watches_sees_a_pause_with_the_next_tick(memory_broker):
    """D59."""
    site = dashboard(memory_broker, access=lambda _: None)
    assert site.live.read().rules == []

    memory_broker.put(Rule(RuleKind.PAUSE, "mail"))

    assert site.live.read().rules == ["pause queue mail"]


def test_what_ended_while_nobody_watched_is_not_the_rate_of_a_second(memory_broker, clock):
    site = dashboard(memory_broker, access=lambda _: None)
    memory_broker.enqueue(some_jobs(clock, 3000))
    first = site.live.read()
    clock.advance(seconds=1)
    end_all(memory_broker, begun(succeeded(), clock.now()))
    clock.advance(seconds=60)

    late = site.live.read()
    clock.advance(seconds=1)
    now = site.live.read()

    assert first.seconds is None
    assert (late.seconds, late.succeeded) == (None, 0)
    assert (now.seconds, now.succeeded) == (1.0, 0)
    site.close()


def test_if_more_ended_than_is_read_the_rate_is_of_the_time_that_it_covers(memory_broker, clock):
    site = dashboard(memory_broker, access=lambda _: None)
    memory_broker.enqueue(some_jobs(clock, 3000))
    site.live.read()
    for job in claim(memory_broker, 3000):
        clock.advance(seconds=0.001)
        settle(memory_broker, job, begun(succeeded(), clock.now()))

    tick = site.live.read()

    assert (tick.more, tick.succeeded) == (True, 2000)
    assert tick.seconds == pytest.approx(2.0, abs=0.01)
    site.close()


class CountCache:
    """A store that counts how often it is looked at."""

    def __init__(self, broker) -> None:
        self._broker = broker
        self.looks = 0

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def count(self):
        self.looks += 1
        return self._broker.count()


def test_however_many_watch_the_store_is_looked_at_once_a_tick(serve, memory_broker):
    store = CountCache(memory_broker)
    web = serve(store)
    first, second = web.client(Role.VIEW), web.client(Role.VIEW)

    with first.stream("GET", "/live") as one, second.stream("GET", "/live") as other:
        told, heard = messages(one), messages(other)
        next(told), next(heard)
        ticks = [next(told) for _ in range(2)]
        next(heard)

    assert len(ticks) <= store.looks <= len(ticks) + 2


def test_when_nobody_watches_nobody_looks(memory_broker, monkeypatch):
    monkeypatch.setattr("penstock.web.live.EVERY_SECONDS", 0.001)
    store = CountCache(memory_broker)
    site = dashboard(store, access=lambda _: None)

    async def watched() -> int:
        queue = site.live.open("ada")
        stream = site.live.messages(queue)
        await anext(stream)
        await anext(stream)
        site.live.close(queue)
        assert site.live._ticking is not None
        await site.live._ticking  # it ends by itself
        return store.looks

    looks = asyncio.run(watched())

    assert looks >= 1
    assert store.looks == looks
    site.close()


def test_a_reader_that_does_not_keep_up_is_dropped(memory_broker, monkeypatch):
    monkeypatch.setattr("penstock.web.live.EVERY_SECONDS", 0.001)
    site = dashboard(memory_broker, access=lambda _: None)

    async def slow() -> list[bytes]:
        stream = site.live.messages(site.live.open("ada"))
        await anext(stream)
        assert site.live._ticking is not None
        await site.live._ticking  # nobody reads: it drops the only one, and ends
        return [told async for told in stream]

    assert len(asyncio.run(slow())) <= MOST_BEHIND
    assert site.live._streams == {}
    site.close()


def test_so_many_may_watch_and_no_more(memory_broker, monkeypatch):
    monkeypatch.setattr("penstock.web.live.MOST_STREAMS", 2)
    assert MOST_STREAMS > 2
    from tests.web.conftest import served

    with served(memory_broker) as web:
        clients = [web.client(Role.VIEW) for _ in range(3)]
        with clients[0].stream("GET", "/live") as one, clients[1].stream("GET", "/live") as other:
            told, heard = messages(one), messages(other)
            next(told), next(heard)
            assert clients[2].get("/live").status_code == 503


def test_one_login_may_watch_in_a_few_pages_and_leaves_the_others_theirs(memory_web: Web):
    with ExitStack() as stack:
        for _ in range(MOST_OF_A_LOGIN):
            client = memory_web.client(Role.VIEW)
            stack.enter_context(client.stream("GET", "/live"))

        refused = memory_web.client(Role.VIEW).get("/live")
        other = stack.enter_context(memory_web.client(Role.ADMIN).stream("GET", "/live"))

        assert refused.status_code == 429
        assert refused.json()["error"] == "vera watches in 8 pages already: close one of them."
        assert other.status_code == 200
    assert MOST_OF_A_LOGIN * 10 <= MOST_STREAMS


def test_a_store_that_does_not_answer_is_said_and_tried_again(serve, memory_broker):
    from penstock.errors import StoreUnreachable

    class Down(CountCache):
        def count(self):
            self.looks += 1
            if self.looks == 1:
                message = "the store does not answer"
                raise StoreUnreachable(message)
            return self._broker.count()

    with serve(Down(memory_broker)).client(Role.VIEW).stream("GET", "/live") as answer:
        told = messages(answer)
        next(told)
        [first], [second] = next(told), next(told)

    assert first["error"] == "the store does not answer"
    assert second["error"] is None


def test_streams_end_when_the_server_does(serve, memory_broker):
    web = serve(memory_broker)
    with web.client(Role.VIEW).stream("GET", "/live") as answer:
        told = messages(answer)
        next(told)

        web.site.end_streams()

        assert all(isinstance(ticks, list) for ticks in told)
    assert web.client(Role.VIEW).get("/live").status_code == 503


def test_nobody_watches_without_a_token(memory_web: Web):
    assert memory_web.client().get("/live").status_code == 401


def test_a_tick_sums_up_what_ended(memory_broker, clock):
    from penstock.web.live import tick_of

    memory_broker.enqueue(some_jobs(clock, 2))
    clock.advance(seconds=4)
    for job in claim(memory_broker, 2):
        clock.advance(seconds=1)
        settle(memory_broker, job, begun(succeeded(b"1"), clock.now() - 1))

    tick = tick_of(clock.now(), [], memory_broker.history(), alive=1, more=False, seconds=1.0)

    assert (tick.succeeded, tick.failed) == (2, 0)
    assert tick.took == pytest.approx(1.0)
    assert tick.wait == pytest.approx(4.5)


class Replaced:
    """A store in whose place another one can be put, as behind an address."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __getattr__(self, name: str) -> object:
        return getattr(self.broker, name)


@pytest.mark.parametrize("rows", [0, 1])
def test_another_store_in_the_place_of_this_one_is_followed(serve, memory_broker, clock, rows):
    """Or an older copy: its history has not come to where the last look ended."""
    memory_broker.enqueue(some_jobs(clock, 3))
    end_all(memory_broker, succeeded())
    store = Replaced(memory_broker)
    site = serve(store, metrics=True).site
    checked = CheckedStore(store, Person("dashboard", Role.VIEW), may_change=False)
    site.live.read()
    site.metrics.text(checked)

    store.broker = other = MemoryBroker(clock)
    other.enqueue(some_jobs(clock, 3))
    for job in claim(other, rows):
        settle(other, job, begun(succeeded(), clock.now()))
    assert site.live.read().succeeded == 0
    assert b"penstock_metrics_behind 1.0" in site.metrics.text(checked)
    for job in claim(other, 2):
        settle(other, job, begun(succeeded(), clock.now()))

    assert site.live.read().succeeded == 2
    text = site.metrics.text(checked)
    assert b'outcome="succeeded",queue="default",task="mail:send"} 2.0' in text
    assert b"penstock_metrics_behind 0.0" in text


def test_a_stream_ends_by_itself(serve, memory_broker, monkeypatch):
    """So that nobody watches for much longer than their session lasts."""
    monkeypatch.setattr("penstock.web.live.LONGEST_SECONDS", 1.5)

    with serve(memory_broker).client(Role.VIEW).stream("GET", "/live") as answer:
        ticks = list(messages(answer))

    assert ticks
