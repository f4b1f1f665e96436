"""Connections to a server that dies, stands still, fills up, forgets scripts, or is another one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import termios
import threading
import time

import pytest

from penstock.broker.call_deadline import CallDeadline
from penstock.brokers.redis.errors import CommandFailed, Unanswered
from penstock.brokers.redis.scripts import Script
from penstock.errors import Refused, StoreFull, StoreUnreachable, WrongUrl
from penstock.testing.redis import RedisServer
from tests.stories.conftest import eventually


@pytest.fixture
def script(monkeypatch, tmp_path):
    """A script that counts how often it ran."""
    (tmp_path / "count.lua").write_text("return redis.call('INCR', KEYS[1] .. 'runs')")
    monkeypatch.setattr("penstock.brokers.redis.scripts._FOLDER", tmp_path)
    return Script("count")


def test_many_commands_are_one_packet_and_an_error_is_raised_when_all_were_read(own_redis, connect):
    server = connect(own_redis.url())

    with pytest.raises(CommandFailed, match="wrong number of arguments") as caught:
        server.many([("SET", "a", b"\x00\xff"), ("GET",), ("SET", "b", 7)])

    assert caught.value.code == "ERR"
    assert server.many([("GET", "a"), ("GET", "b"), ("GET", "c")]) == [b"\x00\xff", b"7", None]


def test_a_script_is_sent_again_to_a_server_that_forgot_it(own_redis, connect, script):
    server = connect(own_redis.url())
    assert server.script(script) == 1
    own_redis.command("SCRIPT", "FLUSH")
    assert server.script(script) == 2
    own_redis.kill()
    own_redis.start()

    assert server.script(script) == 3


def test_a_connection_that_the_server_closed_while_it_was_idle_costs_nothing(own_redis, connect):
    server = connect(own_redis.url())
    server.call("SET", "a", 1)
    [wire] = server._idle
    wire.used_at = 0.0  # long ago
    own_redis.kill()
    own_redis.start()

    assert server.call("SET", "a", 2) == b"OK"


def test_what_only_reads_is_asked_again(own_redis, connect):
    server = connect(own_redis.url())
    server.call("SET", "a", 1)
    own_redis.kill()
    own_redis.start()

    assert server.call("GET", "a") == b"1"


def test_a_server_that_is_down_is_unreachable_and_comes_back(own_redis, connect):
    server = connect(own_redis.url())
    own_redis.stop()
    with pytest.raises(StoreUnreachable, match="start it, or check host and port"):
        server.call("GET", "a")
    own_redis.start()

    assert server.call("GET", "a") is None


def test_a_frozen_server_ends_a_call_at_its_deadline(own_redis, connect):
    server = connect(own_redis.url())
    server.call("PING")
    server.call_seconds = 0.2
    own_redis.freeze()

    with pytest.raises(Unanswered, match="no answer in time"):
        server.call("SET", "a", 1)

    own_redis.thaw()
    assert server.call("PING") == b"PONG"


def unread(descriptor: int) -> int:
    """Bytes that were sent, and that the other end has not read."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def test_a_call_that_waits_ends_when_the_process_is_to_stop(own_redis, connect):
    server = connect(own_redis.url())
    server.call("PING")
    own_redis.freeze()
    [wire] = server._idle
    deadline, failed = CallDeadline(), []

    def call():
        with deadline.within():
            try:
                server.call("SET", "a", 1)
            except StoreUnreachable as error:
                failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    eventually(lambda: unread(wire.fileno()))
    deadline.at = time.monotonic()
    thread.join(60)
    own_redis.thaw()

    assert isinstance(failed[0], Unanswered)


def test_a_late_answer_is_never_read_as_that_of_the_next_call(own_redis, connect):
    server = connect(own_redis.url())
    server.call("SET", "a", "first")
    server.call_seconds = 0.2
    own_redis.freeze()
    with pytest.raises(StoreUnreachable):
        server.call("GET", "a")
    own_redis.thaw()
    server.call_seconds = 30.0

    assert server.call("GET", "b") is None


def test_threads_do_not_share_a_connection(own_redis, connect):
    server = connect(own_redis.url())
    wrong = []

    def work(number):
        names = [f"{number}-{turn}" for turn in range(200)]
        wrong.extend(name for name in names if server.call("ECHO", name) != name.encode())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_a_forked_child_has_connections_of_its_own(own_redis, connect):
    server = connect(own_redis.url())
    server.call("SET", "a", "parent")
    child = os.fork()
    if not child:
        try:
            own = server.call("SET", "b", "child") == b"OK"
            server.close()
            os._exit(0 if own else 1)
        finally:
            os._exit(2)

    assert os.waitpid(child, 0)[1] == 0
    assert server.many([("GET", "a"), ("GET", "b")]) == [b"parent", b"child"]


def test_full_memory_is_store_full(connect, script):
    with RedisServer({"maxmemory-policy": "noeviction"}) as own:
        server = connect(own.url())
        server.call("SET", "a", 1)
        own.command("CONFIG", "SET", "maxmemory", "100kb")

        with pytest.raises(StoreFull, match="nothing of this call was written"):
            server.call("SET", "a", 2)
        with pytest.raises(StoreFull):
            server.script(script)

        assert server.call("GET", "a") == b"1"


def test_a_login_that_is_refused_names_what_to_correct(connect):
    with RedisServer({"requirepass": "geheim"}, port=True) as own:
        address = own.url().removeprefix("redis://")
        with pytest.raises(WrongUrl, match="wants a password"):
            connect(f"redis://{address}").call("PING")
        with pytest.raises(WrongUrl, match="refuses this login") as caught:
            connect(f"redis://:falsch@{address}").call("PING")
        assert "falsch" not in str(caught.value)
        with pytest.raises(WrongUrl, match="no database of this number"):
            connect(f"redis://:geheim@{address}99").call("PING")
        assert connect(f"redis://:geheim@{address}").call("PING") == b"PONG"


def test_a_user_without_rights_is_refused(own_redis, connect):
    own_redis.command("ACL", "SETUSER", "ada", "on", ">pw", "~{penstock}:*", "+@read")
    path = own_redis.socket

    with pytest.raises(Refused, match="this user may not do that"):
        connect(f"redis+unix://ada:pw@{path}").call("SET", "{penstock}:a", 1)


def test_a_url_with_replicas_wants_their_word(own_redis, connect, script):
    server = connect(own_redis.url(replicas="1"))

    with pytest.raises(Unanswered, match="but 0 of 1 replicas"):
        server.script(script)


def test_a_demoted_server_is_unreachable_and_nothing_was_written(own_redis, connect):
    server = connect(own_redis.url())
    server.call("SET", "a", 1)
    own_redis.command("REPLICAOF", "127.0.0.1", 1)

    with pytest.raises(StoreUnreachable, match="is a replica"):
        server.call("SET", "a", 2)

    own_redis.command("REPLICAOF", "NO", "ONE")
    assert server.call("GET", "a") == b"1"


def test_a_script_of_somebody_else_that_never_ends_is_told_and_overcome(own_redis, connect):
    server = connect(own_redis.url())
    own_redis.command("CONFIG", "SET", "lua-time-limit", 20)
    endless = threading.Thread(target=run_endless_script, args=(own_redis,))
    endless.start()
    said = ""
    while not said:
        try:
            server.call("GET", "a")
        except StoreUnreachable as error:
            said = str(error)
    assert "is busy with a script" in said

    own_redis.command("SCRIPT", "KILL")
    endless.join()
    assert server.call("SET", "a", 1) == b"OK"


def run_endless_script(own_redis):
    with pytest.raises(CommandFailed):
        own_redis.command("EVAL", "while true do end", 0)


def test_what_was_written_while_the_log_was_rewritten_is_there_after_a_kill(own_redis, connect):
    server = connect(own_redis.url())
    for number in range(500):
        server.call("HSET", "h", number, b"x" * 1000)
        if number % 100 == 50:
            with contextlib.suppress(CommandFailed):  # one is under way
                own_redis.command("BGREWRITEAOF")
    own_redis.kill()
    own_redis.start()

    assert server.call("HLEN", "h") == 500
