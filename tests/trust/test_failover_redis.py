"""A URL of Sentinels leads to the master, and to the next one after a failover."""

from __future__ import annotations

import time

import pytest

from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.errors import StoreUnreachable
from penstock.testing.redis import RedisServer


@pytest.fixture
def connect():
    """Opens servers of a URL, and closes them."""
    opened = []

    def connect(url):
        opened.append(ServerCalls(parse_address(url)))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def until(so):
    deadline = time.monotonic() + 60
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def counted(server):
    try:
        return server.call("INCR", "a")
    except StoreUnreachable:
        return False


@pytest.fixture
def sentinel():
    """A master with a replica, and the Sentinel that watches them."""
    with (
        RedisServer(kind="valkey", port=True) as master,
        RedisServer({"replicaof": f"127.0.0.1 {master.port}"}, kind="valkey", port=True) as replica,
        RedisServer(
            {
                "sentinel": [
                    f"monitor mymaster 127.0.0.1 {master.port} 1",
                    "down-after-milliseconds mymaster 300",
                    "failover-timeout mymaster 2000",
                ]
            },
            kind="valkey",
            port=True,
            sentinel=True,
        ) as watcher,
    ):
        yield master, replica, watcher


def test_the_master_is_found_and_the_next_one_after_it(sentinel, connect):
    master, replica, watcher = sentinel
    nobody = "127.0.0.1:1"  # is asked first
    server = connect(f"redis+sentinel://{nobody},127.0.0.1:{watcher.port}/mymaster/0?replicas=1")
    until(lambda: b"state=online" in master.command("INFO", "replication"))
    assert server.call("SET", "a", 1) == b"OK"
    assert server.call("WAIT", 1, 0) == 1
    until(lambda: b"slaves=1" in watcher.command("INFO", "sentinel"))
    master.kill()

    until(lambda: counted(server))

    assert int(replica.command("GET", "a")) >= 2


def test_a_name_that_no_sentinel_knows_is_told(sentinel, connect):
    _, _, watcher = sentinel

    with pytest.raises(StoreUnreachable, match="no Sentinel knows a master 'other'"):
        connect(f"redis+sentinel://127.0.0.1:{watcher.port}/other").call("PING")
