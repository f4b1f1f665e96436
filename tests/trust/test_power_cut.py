"""A power cut between a claim and the flush of its commit: the claim is lost, and nothing else.

Claims do not wait for the disk. What a power cut leaves is the log up to its last flush: of SQLite
the write-ahead log is cut there, PostgreSQL is killed while its log is only in memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.job import State, failed, put_back, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job, claim, history_of
from penstock.testing.postgres import Server

Cut = Callable[[], Broker]  # opens what is left of the store
KINDS = pytest.mark.parametrize(
    "fields", [{}, {"tags": {"a": "b"}}], ids=["in a parcel", "in a row"]
)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> tuple[Broker, Callable[[], None], Cut]:
    """A store, what to call when all so far is on the disk, and the cut."""
    return request.getfixturevalue(f"{request.param}_to_cut")


@pytest.fixture
def sqlite_to_cut(tmp_path: Path) -> Iterator[tuple[Broker, Callable[[], None], Cut]]:
    path, flushed = tmp_path / "jobs.db", [0]
    log = tmp_path / "jobs.db-wal"

    def cut() -> Broker:
        left = tmp_path / "left"
        left.mkdir()
        shutil.copy(path, left)
        (left / log.name).write_bytes(log.read_bytes()[: flushed[0]])
        return open_broker(f"sqlite:///{left / path.name}")

    with closing(open_broker(f"sqlite:///{path}")) as broker:
        yield broker, lambda: flushed.__setitem__(0, log.stat().st_size), cut


@pytest.fixture
def postgres_to_cut() -> Iterator[tuple[Broker, Callable[[], None], Cut]]:
    # Nobody writes the log but those who wait for it.
    with Server({"wal_writer_delay": "10s", "bgwriter_lru_maxpages": 0}) as server:
        url = server.create_database()

        def cut() -> Broker:
            server.kill()
            server.start()
            return open_broker(url)

        with closing(open_broker(url)) as broker:
            yield broker, lambda: None, cut


@KINDS
def test_the_attempt_of_a_lost_claim_is_counted_again_from_where_it_was(store, fields):
    """The next claim has the same number. It is no lapse, and the crash budget is whole."""
    broker, flushed, cut = store
    job = a_job(Clock(broker.clock.now()), **fields)
    claim(broker)  # the worker's row is known
    broker.enqueue([job])
    flushed()
    [lost] = claim(broker)
    assert (lost.id, lost.attempt) == (job.id, 1)

    with closing(cut()) as left:
        kept = left.get(job.id)
        assert (kept.state, kept.attempt, kept.lapses, kept.failures) == (State.READY, 0, 0, 0)
        assert history_of(left, job.id) == []

        [again] = claim(left, worker="worker-2")
        assert (again.id, again.attempt, again.lapses) == (job.id, 1, 0)
        for outcome in (succeeded(), failed("x"), put_back("shutdown")):
            assert left.settle([(lost, outcome)]) == [False]
        assert left.settle([(again, succeeded())]) == [True]

        [attempt] = history_of(left, job.id)
        assert (attempt.attempt, attempt.worker) == (1, "worker-2")


@KINDS
def test_the_outcome_of_a_lost_claim_is_refused_and_the_job_runs_again(store, fields):
    broker, flushed, cut = store
    job = a_job(Clock(broker.clock.now()), **fields)
    claim(broker)
    broker.enqueue([job])
    flushed()
    [lost] = claim(broker)

    with closing(cut()) as left:
        assert left.settle([(lost, succeeded())]) == [False]
        assert left.get(job.id).state is State.READY
        assert [each.attempt for each in claim(left)] == [1]


@KINDS
def test_what_was_settled_is_on_the_disk(store, fields):
    """Its claim with it, whatever came before."""
    broker, flushed, cut = store
    job = a_job(Clock(broker.clock.now()), **fields)
    broker.enqueue([job])
    [held] = claim(broker)
    assert broker.settle([(held, succeeded())]) == [True]
    flushed()

    with closing(cut()) as left:
        assert left.get(job.id).state is State.SUCCEEDED
        assert [event.attempt for event in history_of(left, job.id)] == [1]
        assert claim(left) == []
