"""Through a pooler that hands sessions around: the whole life of jobs, slower to be heard of."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from penstock import App, RetryLater, State, StoreUnreachable
from penstock.broker.filter import Filter
from penstock.broker.views import Note
from penstock.enqueue.handle import Handle
from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_worker, claim, settle_and_claim_for, some_jobs
from penstock.testing.postgres import Server
from penstock.worker import Worker
from tests.stories.conftest import Story, eventually
from tests.stories.pooler import Pooler

PGBOUNCER = shutil.which("pgbouncer")
POOLERS = ["ours", *(["pgbouncer"] if PGBOUNCER else [])]


class PgBouncer:
    """The real one, where it is installed."""

    def __init__(self, url: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server, database = url.rsplit("/", 1)
        address = server.rpartition("@")[2]
        host, _, server_port = address.partition(":")
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n{database} = host={host} port={server_port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 3\nunix_socket_dir =\n"
            "ignore_startup_parameters = extra_float_digits,options\n"
        )
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        folder.chmod(0o755)
        self.pins: set[str] = set()  # it does not say
        self._process = subprocess.Popen([str(PGBOUNCER), "-q", *user, str(settings)])
        self.url = f"postgresql://postgres@127.0.0.1:{port}/{database}"
        eventually(lambda: _listens(port))

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def trusting() -> Iterator[Server]:
    """A server that asks for no password: the small pooler has none to give."""
    with Server({"fsync": "off"}) as server:
        yield server


@pytest.fixture(params=POOLERS)
def pooler(request, trusting, tmp_path) -> Iterator[Pooler | PgBouncer]:
    url = trusting.create_database()
    pooler = Pooler(url) if request.param == "ours" else PgBouncer(url, tmp_path)
    yield pooler
    pooler.close()


@pytest.fixture
def pooler_url(pooler) -> str:
    return pooler.url


@pytest.fixture
def pooled(pooler_url, tmp_path) -> Iterator[Story]:
    story = Story(tmp_path, f"{pooler_url}?pooler=true")
    yield story
    story.close()


def test_the_whole_life_of_jobs(pooled, pooler):
    """A53: nobody can listen through it, so that no hint ever comes."""
    nap, nap_async = pooled.task("nap"), pooled.task("nap_async")
    batch = nap.enqueue_many([(n,) for n in range(1000)], id="import")
    fleet = pooled.start(processes=2)
    handles = [
        *(nap.enqueue(n) for n in range(2000, 2050)),
        *(nap_async.enqueue(n) for n in range(50)),
        pooled.task("crunch").enqueue(1),
        nap.options(delay=1, tags={"a": "b"}, unique="one").enqueue(3000),
    ]

    assert [handle.result(timeout=60) for handle in handles[:50]] == list(range(2000, 2050))
    eventually(lambda: sum(count.total for count in pooled.broker.count()) == 0, timeout=60)
    assert batch.count == 1000
    assert pooled.states(handles) == {State.SUCCEEDED: 102}
    assert set(pooled.successes().values()) == {1}
    assert len(pooled.successes()) == 1102
    assert pooled.counted() == {}
    fleet.signal(signal.SIGTERM)
    assert fleet.wait() == 0, fleet.output()
    assert "ERROR" not in fleet.output()
    assert pooler.pins == set()


def test_a_pause_that_nobody_can_be_told_of_is_obeyed(pooled):
    """The worker hears nothing, and looks at the rules before each start."""
    pooled.start(processes=1, threads=2)
    nap = pooled.task("nap")
    nap.enqueue_many([(n, 0.01) for n in range(2000)])
    eventually(lambda: len(pooled.ledger("nap")) > 50)

    for _ in range(5):
        pooled.broker.put(Rule(RuleKind.PAUSE, task="nap"))
        returned = time.monotonic()
        time.sleep(0.3)
        late = [line for line in pooled.ledger("nap") if float(line[-1]) > returned]
        # One that is past its last look may be on its way to its first line.
        assert len(late) <= 2, late
        pooled.broker.clear(Rule, rule_id(RuleKind.PAUSE, task="nap"))
        count = len(pooled.ledger("nap"))
        eventually(lambda before=count: len(pooled.ledger("nap")) > before + 20)


def test_every_verb(pooler, pooler_url):
    app = App(f"{pooler_url}?pooler=true")
    broker, clock = app.broker, app.broker.clock
    jobs = [*some_jobs(clock, 5), *some_jobs(clock, 5, tags={"a": "b"})]
    broker.enqueue(jobs)
    broker.put(Rule(RuleKind.PAUSE, queue="other"))
    held = claim(broker, 6)
    assert len(held) == 6
    assert broker.renew([a_worker()], holding=[job.id for job in held]).cancelled == frozenset()
    assert broker.note(held[0], Note("progress", "", b"0.5"))
    assert broker.settle([(held[0], succeeded()), (held[1], failed("x"))]) == [True, True]
    accepted, more = settle_and_claim_for(
        broker, [(job, succeeded()) for job in held[2:]], a_worker()
    )
    assert (accepted, len(more)) == ([True] * 4, 1)
    assert broker.act("cancel", [more[0].id]) == [more[0].id]
    assert broker.renew([a_worker()]).cancelled == {more[0].id}
    assert broker.recover(dead="worker-1") == 1
    assert broker.act("retry", [held[1].id]) == [held[1].id]
    assert len(broker.find(Filter(), limit=100).jobs) == 10
    assert broker.act("delete", [jobs[-1].id]) in ([jobs[-1].id], [])
    assert broker.history()
    assert broker.why(jobs[0].id).sentence
    assert broker.records(Rule)
    assert broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="other"))
    assert broker.workers() == []
    transaction = broker.begin()
    assert transaction.connection.execute("select 1").fetchone() == (1,)
    transaction.rollback()
    broker.prune(clock.now() - 100)
    app.close()
    assert pooler.pins == set()


def test_without_the_option_it_is_said_once_and_then_goes_on(pooler_url):
    """No statement of somebody else's is run by mistake: a name belongs to one statement."""
    apps = [App(pooler_url) for _ in range(3)]
    for app in apps:

        @app.task(name="mail:send")
        def send(n: int) -> None: ...

    said: list[str] = []
    stored = 0
    for number in range(60):
        app = apps[number % 3]
        try:
            app.tasks["mail:send"].enqueue(number)
            stored += 1
        except StoreUnreachable as error:
            said.append(str(error))

    assert len(said) <= 3
    assert all("add ?pooler=true to the URL" in sentence for sentence in said)
    assert sum(count.ready for count in apps[0].broker.count()) == stored
    ran = [job for app in apps for job in drain(app)]
    assert len(ran) == len(set(ran)) == stored
    for app in apps:
        app.close()


def drain(app: App) -> list[str]:
    ran: list[str] = []
    while True:
        try:
            jobs = claim(app.broker, 7)
            if not jobs:
                return ran
            assert all(app.broker.settle([(job, succeeded()) for job in jobs]))
        except StoreUnreachable:
            app.broker.renew([a_worker()], holding=[])
            continue
        ran += [job.id for job in jobs]


def test_a_worker_without_the_option_works_all_the_same(pooler, pooler_url, tmp_path):
    with closing(Story(tmp_path, pooler_url)) as story:
        fleet = story.start(processes=2)
        handles: list[Handle] = []
        while len(handles) < 30:
            with suppress(StoreUnreachable):
                handles.append(story.task("nap").enqueue(len(handles)))

        assert [handle.result(timeout=60) for handle in handles] == list(range(30))
        assert story.counted() == {}
        assert fleet.process.poll() is None
    if isinstance(pooler, Pooler):  # which names what it heard
        assert pooler.pins != set()


def test_a_retry_and_a_put_back_through_it(pooler_url):
    app = App(f"{pooler_url}?pooler=true")
    ran: list[int] = []

    @app.task(name="later")
    def later(n: int) -> int:
        ran.append(n)
        if len(ran) < 3:
            raise RetryLater(after=0.1)
        return n

    handle = later.enqueue(5)
    worker = Worker(app, threads=1, drain=True)
    worker.work()

    assert handle.result(timeout=1) == 5
    assert ran == [5, 5, 5]
    app.close()
