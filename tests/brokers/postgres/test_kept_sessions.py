"""The emptied store of a test process: one test after the other uses it over the same session."""

from __future__ import annotations

from penstock.brokers import open_broker


def session_of(url, clock):
    broker = open_broker(url, clock)
    [connection] = broker.store._idle
    session = connection.info.backend_pid
    broker.close()
    return session


def test_a_store_takes_over_the_session_that_the_one_before_left_idle(postgres_store_url, clock):
    first = session_of(postgres_store_url, clock)

    assert session_of(postgres_store_url, clock) == first


def test_a_store_elsewhere_has_a_session_of_its_own(own_store_url, clock):
    first = session_of(own_store_url, clock)

    assert session_of(own_store_url, clock) != first
