"""The primary is lost and its standby takes its place: what was replicated is kept, and no more."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from penstock import App, State, UnknownOutcome
from penstock.broker.filter import Filter
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_worker, claim_for
from penstock.testing.postgres import Server
from tests.postgres_store import copy_data
from tests.stories.conftest import eventually


class Standby(Server):
    """Streams from a primary, of whose data it begins with a copy; the primary must be stopped."""

    def __init__(self, primary: Server) -> None:
        self._primary = primary
        line = f"host=127.0.0.1 port={primary.port} user=postgres application_name=standby"
        super().__init__({"primary_conninfo": line, "wal_retrieve_retry_interval": "100ms"})

    def _make_data(self) -> None:
        copy_data(self._primary.data, self.data)
        signal_file = self.data / "standby.signal"
        signal_file.touch()
        owner = self.data.stat()
        os.chown(signal_file, owner.st_uid, owner.st_gid)

    def promote(self) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            row = connection.execute("select pg_promote(true, 60)").fetchone()
        assert row == (True,)


class Pair:
    """A primary with a store and its standby, and an app on the primary."""

    def __init__(self, primary: Server, standby: Server, url: str) -> None:
        self.primary, self.standby = primary, standby
        self.url = url
        self.app = self._app(url)

    def _app(self, url: str) -> App:
        app = App(url)

        @app.task(name="work")
        def work(n: int) -> None: ...

        return app

    def run_some(self, count: int) -> set[str]:
        """Claim and settle; the ids of those whose end was recorded."""
        jobs = claim_for(self.app.broker, a_worker(tasks={"work": 1}), limit=count)
        taken = self.app.broker.settle([(job, succeeded()) for job in jobs])
        return {job.id for job, ok in zip(jobs, taken, strict=True) if ok}

    def fail_over(self) -> None:
        """The primary is killed, the standby promoted, and the app finds it at its new address."""
        self.primary.kill()
        self.standby.start()
        self.standby.promote()
        self.app.close()
        self.app = self._app(self.url.replace(f":{self.primary.port}/", f":{self.standby.port}/"))

    def stored(self) -> dict[str, State]:
        return {job.id: job.state for job in self.app.broker.find(Filter(), limit=1000).jobs}


@pytest.fixture
def pair(own_postgres: Server) -> Iterator[Pair]:
    url = own_postgres.create_database()
    App(url).broker.close()
    own_postgres.stop()
    with Standby(own_postgres) as standby:
        own_postgres.start()
        with psycopg.connect(own_postgres.url(), autocommit=True) as looker:
            streaming = "select 1 from pg_stat_replication where state = 'streaming'"
            eventually(lambda: looker.execute(streaming).fetchone())
        pair = Pair(own_postgres, standby, url)
        yield pair
        pair.app.close()


def wait_for_the_standby(server: Server) -> None:
    """From now on a commit waits until the standby has it on its disk."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = 'standby'")
        connection.execute("select pg_reload_conf()")
        state = "select 1 from pg_stat_replication where sync_state = 'sync'"
        eventually(lambda: connection.execute(state).fetchone())


def test_a_synchronous_standby_has_everything_that_was_accepted_and_every_end(pair):
    """V7: what was accepted is there, and what was settled is never run again."""
    wait_for_the_standby(pair.primary)
    accepted = {pair.app.tasks["work"].enqueue(n).id for n in range(40)}
    ended = pair.run_some(15)

    pair.fail_over()

    states = pair.stored()
    assert set(states) == accepted
    assert {id for id, state in states.items() if state is State.SUCCEEDED} == ended
    assert len(ended) == 15
    pair.app.broker.recover(dead=a_worker().id, started=())
    assert pair.run_some(100) == accepted - ended


def test_without_it_what_was_not_replicated_is_missing(pair):
    """Jobs accepted last are lost, and a job whose end was recorded last runs again."""
    early = [pair.app.tasks["work"].enqueue(n).id for n in range(5)]
    before = pair.run_some(2)
    with psycopg.connect(pair.primary.url(), autocommit=True) as looker:
        behind = "select 1 from pg_stat_replication where replay_lsn < pg_current_wal_flush_lsn()"
        eventually(lambda: not looker.execute(behind).fetchone())
    pair.standby.stop()
    late = pair.app.tasks["work"].enqueue(5).id
    lost_end = pair.run_some(1)

    pair.fail_over()

    states = pair.stored()
    assert late not in states
    assert set(states) == set(early)
    assert {id for id, state in states.items() if state is State.SUCCEEDED} == before
    pair.app.broker.recover(dead=a_worker().id, started=())
    assert pair.run_some(100) == set(early) - before >= lost_end


def test_an_enqueue_whose_primary_was_lost_can_be_sent_again(pair):
    wait_for_the_standby(pair.primary)
    job = pair.app.tasks["work"].job(1)
    job.enqueue()
    pair.primary.kill()
    with pytest.raises(Exception, match=r"does not answer|refused") as caught:
        pair.app.enqueue([job])
    again = caught.value.jobs if isinstance(caught.value, UnknownOutcome) else [job]

    pair.fail_over()
    pair.app.enqueue(again)

    assert pair.stored() == {job.id: State.READY}
