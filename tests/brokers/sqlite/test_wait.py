"""Wait, of a store in a file: hints are datagrams, and a look at the file where they are lost."""

from __future__ import annotations

import tempfile

from penstock.brokers.sqlite import SqliteBroker
from penstock.brokers.sqlite.condition import condition
from penstock.testing.conformance.core.test_wait import hinted_by
from penstock.testing.conformance.factories import a_job, claim


def test_a_look_at_the_file_does_where_every_hint_is_lost(sqlite_broker, clock, tmp_path):
    """A53: no datagram arrives, and the waiting thread is woken all the same."""
    other = SqliteBroker(tmp_path / "jobs.db", clock=clock)

    def enqueue_unheard() -> None:
        for listener in sqlite_broker.store.wake_sender.folder.iterdir():
            listener.unlink()
        other.enqueue([a_job(clock)])

    assert hinted_by(sqlite_broker, enqueue_unheard)
    assert len(claim(sqlite_broker)) == 1
    other.close()


def test_whoever_waited_last_leaves_no_folder_of_sockets(sqlite_broker, clock):
    folder = sqlite_broker.store.wake_sender.folder
    assert not folder.exists()  # nobody waits yet
    assert hinted_by(sqlite_broker, lambda: sqlite_broker.enqueue([a_job(clock)]))
    assert folder.exists()

    sqlite_broker.close()

    assert not folder.exists()


def test_where_no_socket_can_be_made_it_looks_and_the_doctor_says_so(tmp_path, clock, monkeypatch):
    deep = tmp_path / ("deep" * 30)  # more than a socket's path may have
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    broker = SqliteBroker(tmp_path / "deaf.db", clock=clock)

    assert hinted_by(broker, lambda: broker.enqueue([a_job(clock)]))

    broker.close()
    assert "no sockets can be made" in " ".join(
        each.says for each in condition(tmp_path / "deaf.db").trouble
    )
