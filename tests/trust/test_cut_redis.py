"""The line to Redis is cut at any moment of a call: before a message, behind it, or within it."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import suppress

import pytest

from penstock import State, StoreUnreachable, UnknownOutcome
from penstock.broker.filter import Filter
from penstock.broker.values import Batch
from penstock.brokers import open_broker
from penstock.job import failed, put_back, succeeded, try_again
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    begun,
    claim,
    history_of,
    part,
    settle_and_claim_for,
    some_jobs,
)
from penstock.testing.redis import RedisServer
from tests.stories.proxy import Proxy

MOST_MESSAGES = 60
SENT = {
    "plain": lambda clock: some_jobs(clock, 5),
    "one": lambda clock: [a_job(clock)],
    "tagged": lambda clock: some_jobs(clock, 3, tags={"tenant": "a"}),
}
OUTCOMES = {
    "succeeded": lambda clock: succeeded(b"1"),
    "failed": lambda clock: failed("ValueError"),
    "again": lambda clock: try_again("OSError", clock.now()),
    "back": lambda clock: put_back("limit"),
}


@pytest.fixture(scope="module")
def server():
    with RedisServer({"appendonly": "no"}, port=True) as server:
        yield server


@pytest.fixture
def url(server):
    server.command("FLUSHALL")
    return server.url(durability="none", retention="14d")


@pytest.fixture
def near(url, clock):
    broker = open_broker(url, clock)
    yield broker
    broker.close()


@pytest.fixture
def proxy(url):
    with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
def far(near, proxy, clock):
    """A broker at the other end of the line."""
    broker = open_broker(proxy.url, clock)
    yield broker
    proxy.heal()
    broker.close()


def each_message(proxy):
    """The number of the message to cut: the first, the second, ... until the verb has no more."""
    for number in range(MOST_MESSAGES):
        yield number
        proxy.heal()
        if not proxy.cuts:
            assert number > 0
            return
    pytest.fail("there was no end to it")


def run_all(broker, clock):
    """Work off what is there, as often as it is handed out."""
    broker.renew([a_worker()], holding=[])
    ran = Counter()
    while jobs := claim(broker, 100):
        ran.update(job.id for job in jobs)
        assert all(broker.settle([(job, succeeded()) for job in jobs]))
    clock.advance(seconds=1)
    return ran


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "for good"])
def test_an_enqueue(proxy, far, near, clock, *, kind, where, times):
    """Stored once, or told that nobody knows, or certainly not: and sent again, stored once."""
    unknown = 0
    for number in each_message(proxy):
        jobs = SENT[kind](clock)
        sent = jobs
        proxy.cut_nth(number, where, times)
        try:
            far.enqueue(jobs)
        except UnknownOutcome as error:
            unknown += 1
            sent = error.jobs
        except StoreUnreachable:
            assert near.find(Filter(state=(State.READY,))).jobs == []
        proxy.heal()

        far.enqueue(sent)

        assert run_all(near, clock) == Counter({job.id: 1 for job in jobs})
    # Cut once, the broker has sent it again itself.
    assert bool(unknown) == (times > 1)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_batch(proxy, far, near, clock, where):
    """It counts on from what was stored: the count is asked for, and the rest is sent."""
    for number in each_message(proxy):
        jobs, batch = some_jobs(clock, 5), f"import-{number}-{where}"
        proxy.cut_nth(number, where)
        try:
            far.enqueue(jobs, batch=Batch(batch, 0))
        except (UnknownOutcome, StoreUnreachable):
            proxy.heal()
            if far.enqueue([], batch=Batch(batch)).batch == 0:
                far.enqueue(jobs, batch=Batch(batch, 0))
        proxy.heal()

        assert far.enqueue([], batch=Batch(batch)).batch == 5
        assert sum(run_all(near, clock).values()) == 5


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_flow(proxy, far, near, clock, where):
    """All of it is stored once, or nothing: and sent again, it runs once from end to end."""
    for number in each_message(proxy):
        flow = a_flow(clock, work=part(jobs=3), last=part("work"))
        proxy.cut_nth(number, where, 1000)
        try:
            flow.send(far)
        except (UnknownOutcome, StoreUnreachable):
            stored = near.flow(flow.flow.id) is not None
            states = flow.states(near, "work") + flow.states(near, "last")
            assert all((state is not None) == stored for state in states)
        proxy.heal()

        flow.send(far)

        assert run_all(near, clock) == Counter({job.id: 1 for job in flow.jobs})
        assert near.flow(flow.flow.id).ended_at is not None


@pytest.mark.parametrize("good", [True, False], ids=["freed", "cancelled"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_the_end_of_a_need(proxy, far, clock, good, where):
    """Whoever did not hear the answer asks again: what follows is freed, or cancelled, once."""
    for number in each_message(proxy):
        flow = a_flow(clock, work=part(jobs=2), last=part("work"))
        flow.send(far)
        held = claim(far, 4)
        outcomes = [succeeded(b"1"), succeeded(b"2") if good else failed("ValueError")]
        pairs = [(job, begun(end, clock.now())) for job, end in zip(held, outcomes, strict=True)]
        proxy.cut_nth(number, where)
        with suppress(StoreUnreachable):
            far.settle(pairs)
        proxy.heal()
        far.settle(pairs)  # as the worker's line does

        row = flow.row(far, "work")
        assert (row.jobs_left, row.bad) == (0, 0 if good else 1)
        assert flow.states(far, "last") == [State.READY if good else State.CANCELLED]
        assert run_all(far, clock) == Counter(flow.ids("last") if good else [])
        assert far.flow(flow.flow.id).ended_at is not None


@pytest.mark.parametrize("fields", [{}, {"tags": {"a": "b"}}], ids=["plain", "tagged"])
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_settle(proxy, far, clock, *, fields, outcome, where):
    """Whoever did not hear the answer asks again: it is applied once, whichever of them did it."""
    for number in each_message(proxy):
        jobs = some_jobs(clock, 4, **fields)
        far.enqueue(jobs)
        held = claim(far, 4)
        pairs = [(job, begun(OUTCOMES[outcome](clock), clock.now())) for job in held]
        proxy.cut_nth(number, where)
        with suppress(StoreUnreachable):
            far.settle(pairs)
        proxy.heal()
        far.settle(pairs)  # as the worker's line does

        assert sum(count.running for count in far.count()) == 0
        for job in jobs:
            attempts = [event for event in history_of(far, job.id) if event.kind == "attempt"]
            assert len(attempts) == 1
        left = run_all(far, clock)
        assert left == (Counter(job.id for job in jobs) if outcome in {"again", "back"} else {})


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_settle_that_claims_on_the_way(proxy, far, clock, where):
    """What the lost answer had claimed is put back uncounted, and nothing is stuck."""
    for number in each_message(proxy):
        jobs = some_jobs(clock, 6)
        far.enqueue(jobs)
        held = claim(far, 3)
        pairs = [(job, succeeded()) for job in held]
        proxy.cut_nth(number, where)
        more = []
        try:
            _, more = settle_and_claim_for(far, pairs, a_worker(), limit=2)
        except StoreUnreachable:
            proxy.heal()
            far.renew([a_worker()], holding=[job.id for job in held])
        proxy.heal()
        far.settle(pairs)
        far.settle([(job, succeeded()) for job in more])

        ran = run_all(far, clock)

        assert {job.id for job in (*held, *more)} | set(ran) == {job.id for job in jobs}
        for job in jobs:
            events = [event for event in history_of(far, job.id) if event.kind == "attempt"]
            assert [(event.state, event.lapses) for event in events] == [(State.SUCCEEDED, 0)]


class Shears:
    """A line that ends after so many bytes of what the client says."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.left = None  # None: whatever it says goes through
        self._ends = []
        self._pumps = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._ends += (client, server)
            for source, sink in ((client, server), (server, client)):
                pump = threading.Thread(target=self._pump, args=(source, sink, source is client))
                pump.daemon = True
                self._pumps.append(pump)
                pump.start()

    def _pump(self, source, sink, cuts):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if cuts and self.left is not None:
                    data = data[: self.left]
                    self.left -= len(data)
                    sink.sendall(data)
                    if not self.left:
                        break
                else:
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for pump in self._pumps:
            pump.join()
        for end in self._ends:
            end.close()


@pytest.fixture
def shears(server):
    shears = Shears(server.port)
    yield shears
    shears.close()


@pytest.mark.parametrize("step", [37])
def test_a_line_that_ends_within_a_message(shears, near, clock, step):
    """The server knows all of a call, or nothing of it: at whatever byte the line ends."""
    far = open_broker(f"redis://127.0.0.1:{shears.port}/0?durability=none", clock)
    lengths, length, stored = [], 0, False
    while not stored:
        jobs = [*some_jobs(clock, 2), a_job(clock, tags={"a": "b"})]
        shears.left = length
        with suppress(StoreUnreachable, UnknownOutcome):
            far.enqueue(jobs)
            stored = True
        shears.left = None
        kept = near.get_many([job.id for job in jobs])
        assert len(kept) in {0, 3}
        lengths.append((length, len(kept)))
        length += step
    assert len(lengths) > 10
    far.close()
