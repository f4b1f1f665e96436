"""Listening: what is kept, what is held open, and that it ends."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.brokers.postgres import PostgresBroker, listening
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_worker, some_jobs
from tests.stories.conftest import eventually


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Whatever is opened from now on has a number beyond 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for number in opened:
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_news_for_a_thread_that_waits_no_more_do_not_pile_up(postgres_broker):
    postgres_broker.wait(None, 0)
    listener = postgres_broker.store.listener
    for number in range(1000):
        listener._announce(str(number))
    for _ in range(1000):
        listener.wake()

    assert all(box.qsize() <= 101 for box in listener._waiting.values())
    assert postgres_broker.wait(("default",), 0)
    assert not postgres_broker.wait(("default",), 0)


def test_what_was_announced_before_a_thread_waits_for_the_first_time_is_not_lost(
    postgres_broker, clock
):
    """Else a busy worker's first wait misses the job that its own outcomes made ready."""
    postgres_broker.traits.rules_version()  # starts the listener, as a worker does
    postgres_broker.enqueue(some_jobs(clock, 1))
    eventually(lambda: postgres_broker.store.listener._had_news)

    assert postgres_broker.wait(None, 30)
    assert not postgres_broker.wait(None, 0)


def test_a_process_with_thousands_of_open_files_hears(postgres_store_url, many_descriptors):
    broker, other = PostgresBroker(postgres_store_url), PostgresBroker(postgres_store_url)
    broker.wait(None, 0)
    assert broker.store.listener.receiving
    broker.renew([a_worker()])
    before = broker.traits.rules_version()

    other.put(Rule(RuleKind.PAUSE, queue="mail"))
    broker.wait(None, 5)

    assert broker.store.listener.receiving
    assert broker.traits.rules_version() != before
    other.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"))
    broker.close()
    other.close()


def test_a_close_that_did_not_wait_for_the_end_takes_nothing_away(postgres_broker, monkeypatch):
    postgres_broker.wait(None, 0)
    listener = postgres_broker.store.listener
    thread, pipe = listener._thread, (listener._pipe_out, listener._pipe_in)
    assert all(map(is_open, pipe))
    monkeypatch.setattr(listening, "_CLOSE_SECONDS", 0.0)

    with listener._lock:  # the thread cannot end
        listener._stopped = True
        os.write(listener._pipe_in, b"!")
        thread.join(timeout=0.2)
        assert thread.is_alive()
        assert all(map(is_open, pipe))
    listener.close()
    thread.join(timeout=60)

    assert not thread.is_alive()
    assert (listener._pipe_out, listener._pipe_in) == (-1, -1)
    listener.check_connection()


def test_a_fork_keeps_no_file_of_its_parents_connection_open(postgres_broker):
    postgres_broker.wait(None, 0)
    listener = postgres_broker.store.listener
    pipe, socket = (
        (listener._pipe_out, listener._pipe_in),
        os.fstat(listener._connection.pgconn.socket),
    )

    child = os.fork()
    if child == 0:
        kept = [number for number in pipe if is_open(number)]
        open_files = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
        files = [os.fstat(number) for number in open_files if is_open(number)]
        os._exit(len(kept) + 10 * sum(os.path.samestat(socket, each) for each in files))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert listener.receiving
