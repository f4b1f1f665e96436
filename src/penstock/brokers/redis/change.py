"""One change of the store: what it read, what it is to write, and one script that does both.

    change = RedisChange(server)
    change.read("HGET", "workers", name)       # remembered: it must still be so at the commit
    change.write("HSET", "workers", name, row)
    if not change.commit(): ...                # another changed what was read; do it all again

Reads see the store as it is at that moment, so two reads of one change may disagree. Then the
commit fails, whatever was decided from them; see `broker.RedisBroker`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.scripts import Script
from penstock.brokers.redis.wire import Word

APPLY = Script("apply")
_UNORDERED = {"HGETALL": 2, "HKEYS": 1, "SMEMBERS": 1}


class Buffered(Protocol):
    """A container that keeps its writes until the commit."""

    def checks(self) -> None:
        """Say what has to be still so: `RedisChange.expect`."""
        ...

    def flush(self) -> None:
        """Write."""
        ...


class RedisChange:
    """What one verb reads and writes."""

    def __init__(self, server: ServerCalls, token: str = "", now: float = 0.0) -> None:
        self._server = server
        self._now = now  # positions of the history begin with it
        self._token = token  # of the store's lock, where this change holds it
        self._read: dict[tuple[Word, ...], Any] = {}
        self._writes: list[Sequence[Word]] = []
        self._events: list[Word] = []
        self._buffered: list[Buffered] = []
        self.adds = False  # it adds jobs: refused where memory is full; what ends them is not
        self.hints = False  # whether something may be claimed that could not be before
        self.after: list[Callable[[], None]] = []  # what is done once it is committed

    def read(self, *words: Word) -> Any:
        """The reply to a command without a write; its key has no prefix."""
        if words not in self._read:
            self._read[words] = self._server.call(*self._prefixed(words))
        return self._read[words]

    def read_many(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        """The replies to commands, in one round trip."""
        missing = [words for words in dict.fromkeys(commands) if words not in self._read]
        if missing:
            replies = self._server.many([self._prefixed(words) for words in missing])
            self._read.update(zip(missing, replies, strict=True))
        return [self._read[words] for words in commands]

    def look(self, *words: Word) -> Any:
        """As `read`, but nothing depends on its being so at the commit."""
        return self._server.call(*self._prefixed(words))

    def look_many(self, commands: Sequence[tuple[Word, ...]]) -> list[Any]:
        return self._server.many([self._prefixed(words) for words in commands]) if commands else []

    def write(self, *words: Word) -> None:
        self._writes.append(words)

    def expect(self, words: tuple[Word, ...], reply: Any) -> None:
        """The reply to a command, seen before, has to be the same at the commit."""
        self._read[words] = reply

    def tell(self, event: bytes, job: str | None, kind: str) -> None:
        """Add a row to the history; the commit gives it its position."""
        self._events += (event, job or "", kind)

    def add(self, container: Buffered) -> None:
        """Let a container write what it has buffered before the commit."""
        self._buffered.append(container)

    def holds(self) -> bool:
        """Whether everything that was read is still so."""
        for container in self._buffered:
            container.checks()
        return not self._read or self._apply([], [], hints=False)

    def commit(self) -> bool:
        """Write everything; False, and nothing, if what was read is not so any more."""
        for container in self._buffered:
            container.flush()
            container.checks()
        if not self._writes and not self._events:
            return True
        return self._apply(self._writes, self._events, hints=self.hints)

    def _apply(
        self, writes: Sequence[Sequence[Word]], events: Sequence[Word], *, hints: bool
    ) -> bool:
        args: list[Word] = [self._token, len(self._read)]
        for words, reply in self._read.items():
            canonical = _canonical(reply, _UNORDERED.get(str(words[0])))
            args += (hashlib.sha1(canonical, usedforsecurity=False).hexdigest(), len(words))
            args += words
        args.append(len(writes))
        for words in writes:
            args.append(len(words))
            args += words
        args.append(len(events) // 3)
        args += events
        args += (int(hints), int(self.adds), int(self._now * 1e6))
        return self._server.script(APPLY, *args)[0] == 0

    def _prefixed(self, words: Sequence[Word]) -> Sequence[Word]:
        return (words[0], _joined(self._server.prefix, words[1]), *words[2:])


def _joined(prefix: str, name: Word) -> Word:
    return prefix.encode() + name if isinstance(name, bytes) else f"{prefix}{name}"


def _canonical(reply: Any, size: int | None = None) -> bytes:
    """What apply.lua makes of the same reply."""
    if reply is None:
        return b"N"
    if isinstance(reply, int):
        return b":%d" % reply
    if not isinstance(reply, list):
        return b"$%d:%b" % (len(reply), reply)
    items: list[Any] = reply  # pyright: ignore[reportUnknownVariableType]
    if size is None:
        parts = [_canonical(item) for item in items]
    else:
        parts = sorted(
            b"".join(map(_canonical, items[start : start + size]))
            for start in range(0, len(items), size)
        )
    return b"*%d:%b" % (len(parts), b"".join(parts))
