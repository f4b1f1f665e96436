"""A lake that is filled from a replica: the primary answers for the mark alone."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import penstock.spark
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.spark.pipelines.lake.lake import Lake
from penstock.testing.clock import Clock
from penstock.testing.postgres import Server
from tests.spark.pipelines.exported import of_lake, of_store, some_history
from tests.spark.test_source_stream import LATE
from tests.stories.conftest import eventually
from tests.trust.test_failover_postgres import Standby


class Replica:
    """A store with a standby that streams from it."""

    def __init__(self, primary: Server, standby: Server, url: str) -> None:
        self.url = url
        self.read_url = url.replace(f":{primary.port}/", f":{standby.port}/")
        self.store: Broker = open_broker(url)

    def pause(self, *, on: bool) -> None:
        word = "pause" if on else "resume"
        with psycopg.connect(self.read_url, autocommit=True) as connection:
            connection.execute(f"select pg_wal_replay_{word}()".encode())

    def catch_up(self) -> None:
        with (
            psycopg.connect(self.url, autocommit=True) as primary,
            psycopg.connect(self.read_url, autocommit=True) as standby,
        ):
            [written] = primary.execute("select pg_current_wal_lsn()::text").fetchone() or ()
            behind = "select 1 where pg_last_wal_replay_lsn() >= %s::pg_lsn"
            eventually(lambda: standby.execute(behind, (written,)).fetchone())


@pytest.fixture
def replica(own_postgres: Server) -> Iterator[Replica]:
    url = own_postgres.create_database()
    open_broker(url).close()
    own_postgres.stop()
    with Standby(own_postgres) as standby:
        own_postgres.start()
        replica = Replica(own_postgres, standby, url)
        yield replica
        replica.store.close()


def test_a_replica_that_is_behind_delays_rows_and_loses_none(shared_spark, replica, tmp_path):
    """Issue 17: `read_url`. A writer whose commit comes late, and a standby that stands still."""
    store, lake = replica.store, Lake(tmp_path / "lake")
    spark = penstock.spark.attach(shared_spark, url=replica.url)

    def fill(**options: str) -> int:
        done = penstock.spark.fill_lake(spark, lake, connections=1, **options)
        return done.taken["attempts"]

    some_history(store, Clock(store.clock.now()), 10)
    replica.catch_up()
    assert fill(read_url=replica.read_url) > 10
    with psycopg.connect(replica.url) as late:
        late.execute(LATE, (store.clock.now(),))  # its position is taken, and nobody sees it
        some_history(store, Clock(store.clock.now()), 10)
        replica.catch_up()
        assert fill(read_url=replica.read_url) == 0
    replica.catch_up()
    assert fill(read_url=replica.read_url) > 11
    replica.pause(on=True)
    some_history(store, Clock(store.clock.now()), 10)
    assert fill(read_url=replica.read_url) == 0
    assert fill() > 10  # from the primary: the lake is ahead of the replica now
    assert fill(read_url=replica.read_url) == 0
    replica.pause(on=False)

    assert of_lake(lake) == of_store(store)


def test_another_store_is_no_replica(shared_spark, sqlite_url, tmp_path):
    open_broker(sqlite_url).close()
    other = f"sqlite:///{tmp_path}/other.db"
    open_broker(other).close()
    spark = penstock.spark.attach(shared_spark, url=sqlite_url)

    with pytest.raises(Refused, match="--read-url names a replica of it"):
        penstock.spark.fill_lake(spark, tmp_path / "lake", read_url=other)
    with pytest.raises(Refused, match="connections=0: give 1 or more"):
        penstock.spark.fill_lake(spark, tmp_path / "lake", connections=0)
