"""The server of a store: lends connections to calls, follows its master, repeats what is safe.

A thread has a connection for the time of a call. What was not sent is sent again, once, on another
connection; so is what only reads. A write whose answer was lost raises `Unanswered`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import hiredis

from penstock.broker.call_deadline import OVER, call_seconds
from penstock.brokers.redis.address import StoreAddress
from penstock.brokers.redis.errors import Demoted, Unanswered, error_of
from penstock.brokers.redis.scripts import Script
from penstock.brokers.redis.wire import (
    CALL_SECONDS,
    Command,
    Unsent,
    Wire,
    Word,
    connect,
    seconds_left,
)
from penstock.errors import StoreUnreachable

MOST_IDLE = 8
# Commands that change nothing, and so may be sent twice.
_READS = frozenset(
    {
        *(
            "CONFIG",
            "DBSIZE",
            "EXISTS",
            "GET",
            "HEXISTS",
            "HGET",
            "HGETALL",
            "HKEYS",
            "HLEN",
            "HMGET",
        ),
        *("HSCAN", "HVALS", "INFO", "LLEN", "LRANGE", "MEMORY", "MGET", "OBJECT", "PING", "SCARD"),
        *("SISMEMBER", "SMEMBERS", "SMISMEMBER", "SSCAN", "STRLEN", "TIME", "XLEN", "XRANGE"),
        *("XREVRANGE", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX"),
        *("ZRANGEBYSCORE", "ZRANK", "ZREVRANGE", "ZREVRANGEBYLEX", "ZREVRANGEBYSCORE", "ZSCAN"),
        "ZSCORE",
    }
)


class ServerCalls:
    """Where the commands of one store go; safe between threads, and after a fork."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        self.where = address.where
        self.prefix = address.prefix
        self._prefix = address.prefix.encode()
        self.call_seconds = CALL_SECONDS
        self._lock = threading.Lock()
        self._idle: list[Wire] = []
        self._moved_to: tuple[str, int] | None = None  # where a cluster says that the keys are
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._forget)

    def call(self, *words: Word) -> Any:
        """One command, and its reply."""
        [reply] = self.many([words])
        return reply

    def many(self, commands: Sequence[Command], *, writes: bool | None = None) -> list[Any]:
        """Several commands in one packet; an error reply is raised when all have been read."""
        if not commands:
            return []
        if writes is None:
            writes = any(words[0] not in _READS for words in commands)
        replies = self._exchanged(commands, writes=writes)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise error_of(str(reply), self.where)
        return replies

    def script(self, script: Script, *arguments: Word) -> Any:
        """Run a script; where the server does not know it, its text is sent."""
        call = script.call(self.prefix, arguments)
        for words in (call, script.text_call(self.prefix, arguments)):
            commands: list[Any] = [words]
            if self.address.replicas and script.writes:
                commands.append(("WAIT", self.address.replicas, 1000))
            reply, *waited = self._exchanged(commands, writes=script.writes)
            if isinstance(reply, hiredis.ReplyError):
                if words is call and str(reply).startswith("NOSCRIPT"):
                    continue
                raise error_of(str(reply), self.where)
            self._check_replicas(waited)
            return reply
        raise AssertionError  # pragma: no cover  EVAL never answers NOSCRIPT

    def key(self, name: Word) -> Word:
        """A key of the store: the name behind its prefix."""
        return self._prefix + name if isinstance(name, bytes) else f"{self.prefix}{name}"

    def open_wire(self) -> Wire:
        """A connection of the caller's own, which closes it."""
        return self._connected()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    def _check_replicas(self, waited: Sequence[Any]) -> None:
        for reply in waited:
            if isinstance(reply, hiredis.ReplyError):
                raise error_of(str(reply), self.where)
            if reply < self.address.replicas:
                raise Unanswered(
                    f"the store {self.where} has this write, but {reply} of"
                    f" {self.address.replicas} replicas: a failover may lose it. To send it again"
                    " is safe"
                )

    def _exchanged(self, commands: Sequence[Command], *, writes: bool) -> list[Any]:
        for last in (False, True):
            try:
                replies = self._exchange(commands)
            except Unsent as error:
                if last:
                    raise self._lost(error) from error
                continue
            except Unanswered:
                if writes or last:
                    raise
                continue
            demoted = self._demoted(replies)
            if demoted is None or last:
                return replies
            self._follow(demoted)
        raise AssertionError  # pragma: no cover

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        seconds = call_seconds(self.call_seconds)
        if not seconds:
            raise StoreUnreachable(f"the store {self.where}: {OVER}")
        until = time.monotonic() + seconds
        wire = self._lent()
        try:
            try:
                wire.send(commands, until)
                replies = [wire.reply(until) for _ in commands]
            except Unsent:
                raise
            except (OSError, hiredis.ProtocolError) as error:
                raise self._lost(error) from error
        except BaseException:
            wire.close()
            raise
        self._return(wire)
        return replies

    def _lost(self, error: Exception) -> Unanswered:
        return Unanswered(f"the store {self.where} does not answer: {error}")

    def _demoted(self, replies: Sequence[Any]) -> Demoted | None:
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                error = error_of(str(reply), self.where)
                if isinstance(error, Demoted):
                    return error
        return None

    def _follow(self, demoted: Demoted) -> None:
        """Another server is the master now: ask anew where it is."""
        host, _, port = demoted.moved_to.rpartition(":")
        self._moved_to = (host or self._host(), int(port)) if port.isdecimal() else None
        self.close()

    def _host(self) -> str:
        return self.address.hosts[0][0] if self.address.hosts else ""

    def _lent(self) -> Wire:
        while True:
            with self._lock:
                wire = self._idle.pop() if self._idle else None
            if wire is None:
                return self._connected()
            if wire.pid == os.getpid() and wire.is_usable():
                return wire
            wire.close()

    def _return(self, wire: Wire) -> None:
        wire.used_at = time.monotonic()
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(wire)
                return
        wire.close()

    def _connected(self) -> Wire:
        address = self.address
        try:
            if address.path:
                return connect(address, None)
            if self._moved_to is not None:
                return connect(address, self._moved_to)
            if address.service:
                return connect(address, self._master())
            return connect(address, address.hosts[0])
        except OSError as error:
            self._moved_to = None
            raise StoreUnreachable(
                f"the store {self.where} does not answer: {error}; start it, or check host and port"
                " in the URL"
            ) from error

    def _master(self) -> tuple[str, int]:
        """Where the Sentinels say that the master is."""
        failure: Exception | None = None
        for host in self.address.hosts:
            try:
                wire = connect(self.address, host, sentinel=True)
            except OSError as error:
                failure = error
                continue
            try:
                until = time.monotonic() + max(0.1, seconds_left(time.monotonic() + 5))
                wire.send([("SENTINEL", "get-master-addr-by-name", self.address.service)], until)
                reply = wire.reply(until)
            except OSError as error:
                failure = error
                continue
            finally:
                wire.close()
            if isinstance(reply, list):
                name, port = cast("list[bytes]", reply)
                return name.decode(), int(port)
        raise StoreUnreachable(
            f"the store {self.where}: no Sentinel knows a master {self.address.service!r}"
            + (f" ({failure})" if failure else "")
        )

    def _forget(self) -> None:
        # The connections are the parent's: closed here, they stay open there.
        self._lock = threading.Lock()
        self._idle = []
        self._pid = os.getpid()
