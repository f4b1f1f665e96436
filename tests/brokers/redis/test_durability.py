"""What a server keeps, told at open and by the doctor; less than the URL wants is refused."""

from __future__ import annotations

import threading

import pytest

from penstock.brokers import open_broker, store_condition
from penstock.brokers.redis.durability import check_durability, server_settings
from penstock.errors import Refused, StoreUnreachable
from penstock.testing.redis import RedisServer


def words_of(findings):
    return {(finding.name, finding.says) for finding in findings}


@pytest.fixture(scope="module")
def server():
    with RedisServer(kind="valkey") as server:
        yield server


@pytest.fixture
def settings(server):
    """Sets settings of the server for one test."""

    def set_all(**values):
        for name, value in values.items():
            server.command("CONFIG", "SET", name.replace("_", "-"), value)

    yield set_all
    set_all(appendonly="yes", appendfsync="always", maxmemory="0", maxmemory_policy="noeviction")


def test_the_default_wants_a_flush_for_every_write(server, connect):
    check_durability(connect(server.url()))
    check_durability(connect(server.url(durability="everysec")))

    assert server_settings(connect(server.url())).keeps == "always"


@pytest.mark.parametrize(
    ("values", "kept", "loses"),
    [
        ({"appendfsync": "everysec"}, "everysec", "loses up to two seconds of accepted jobs"),
        ({"appendfsync": "no"}, "none", "accepted jobs are lost with the server"),
        ({"appendonly": "no"}, "none", "accepted jobs are lost with the server"),
    ],
)
def test_less_is_refused_with_what_is_lost_and_both_ways_out(
    server, connect, settings, values, *, kept, loses
):
    settings(**values)

    with pytest.raises(Refused, match=f"{loses}.*appendfsync always.*durability={kept}"):
        check_durability(connect(server.url()))
    check_durability(connect(server.url(durability=kept)))
    check_durability(connect(server.url(durability="server")))


def test_who_does_not_say_is_believed_only_when_the_url_does(server, connect):
    server.command("ACL", "SETUSER", "ada", "on", ">pw", "~{penstock}:*", "+@all", "-config")
    url = f"redis+unix://ada:pw@{server.socket}"

    with pytest.raises(Refused, match=r"does not say how often .* durability=server"):
        check_durability(connect(url))
    with pytest.raises(Refused, match="does not say"):
        check_durability(connect(f"{url}?durability=everysec"))
    check_durability(connect(f"{url}?durability=server"))
    assert server_settings(connect(url)).fsync is None
    seen = store_condition(url, thorough=True)
    assert any("does not say" in fact.says for fact in seen.facts)


@pytest.mark.parametrize("durability", ["always", "server", "none"])
def test_a_server_that_throws_away_keys_is_refused(server, connect, settings, durability):
    settings(maxmemory="100mb", maxmemory_policy="allkeys-lru")

    with pytest.raises(Refused, match=r"throws away keys .*allkeys-lru.* noeviction"):
        check_durability(connect(server.url(durability=durability)))


def test_the_doctor_tells_the_promise_and_the_memory(server, settings):
    server.command("FLUSHALL")
    settings(maxmemory="100mb")

    seen = store_condition(server.url(), thorough=True)

    assert (seen.kind, seen.exists, seen.unseen, seen.trouble) == ("redis", False, None, ())
    assert "kill -9 of any process and of the server" in seen.promise
    assert {name for name, _ in words_of(seen.facts)} == {"durability", "memory"}
    assert any("of 100 MiB used" in says for _, says in words_of(seen.facts))
    assert seen.settings["valkey"].startswith("9.")


def test_the_doctor_tells_what_is_wrong(server, settings):
    open_broker(server.url()).close()
    settings(appendfsync="everysec", maxmemory="1mb")

    seen = store_condition(server.url(), thorough=True)

    assert (seen.exists, seen.unseen) == (True, None)
    assert {(one.name, one.grave) for one in seen.trouble} == {
        ("durability", True),
        ("memory", False),
    }


def test_the_doctor_tells_why_no_store_can_be_made(server, settings):
    server.command("FLUSHALL")
    settings(appendfsync="everysec")

    seen = store_condition(server.url(), thorough=True)

    assert not seen.exists
    assert seen.unseen is not None
    assert "keeps less than durability=always" in seen.unseen.says


def test_the_doctor_tells_of_a_replica_and_of_a_master_that_would_go_on_alone(server):
    with RedisServer(kind="valkey", port=True) as own:
        own.command("REPLICAOF", "127.0.0.1", 1)
        seen = store_condition(own.url(), thorough=True)
        assert ("replicas", "this server is a replica: it takes no writes") in words_of(
            seen.trouble
        )
        own.command("REPLICAOF", "NO", "ONE")
        with RedisServer({"replicaof": f"127.0.0.1 {own.port}"}, kind="valkey"):
            while not server_settings_of(own).replicas:
                pass
            seen = store_condition(own.url(), thorough=True)
            assert any("min-replicas-to-write is 0" in one.says for one in seen.trouble)
            own.command("CONFIG", "SET", "min-replicas-to-write", 1)
            assert not store_condition(own.url(), thorough=True).trouble


def server_settings_of(own):
    from penstock.brokers.redis.address import parse_address
    from penstock.brokers.redis.connection import ServerCalls

    server = ServerCalls(parse_address(own.url()))
    try:
        return server_settings(server)
    finally:
        server.close()


def test_a_server_that_is_down_is_told_as_such():
    seen = store_condition("redis://127.0.0.1:1/0")

    assert seen.unseen is not None
    assert "does not answer" in seen.unseen.says


def test_a_server_that_loads_its_data_is_away_and_not_refused(connect):
    """Meanwhile it says that it has no append-only file."""
    with RedisServer(kind="valkey") as server:
        connect(server.url()).many([("SET", f"filler:{number}", "x") for number in range(4000)])
        server.stop()
        server.settings = {**server.settings, "key-load-delay": 500}
        starts = threading.Thread(target=server.start)
        starts.start()
        said = ""
        while "is loading its data" not in said:
            try:
                check_durability(connect(server.url()))
            except StoreUnreachable as error:
                said = str(error)
            else:
                break
        starts.join()

        assert "is loading its data" in said
        check_durability(connect(server.url()))
