"""Mappings and sets that are in Redis: read when they are asked, written at the commit.

Each belongs to one change. What is read of a mapping by its key has to be so still at the commit;
what a whole mapping holds only where that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSet
from typing import Any, Generic, TypeVar

import msgspec

from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.wire import Word

K = TypeVar("K")
V = TypeVar("V")
_ABSENT = object()
MOST_FIELDS = 500  # of one command


class Codec(Generic[V]):
    """How the values of a mapping are written."""

    def __init__(self, encode: Callable[[V], bytes], decode: Callable[[bytes], V]) -> None:
        self.encode = encode
        self.decode = decode


def packed(kind: Any) -> Codec[Any]:
    """Values of one type, in MessagePack."""
    return Codec(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(kind).decode)


def _text_of(field: bytes) -> Any:
    return field.decode()


def _field_of(key: Any) -> Word:
    return key


class Rows(MutableMapping[K, V]):
    """One hash."""

    def __init__(
        self,
        change: RedisChange,
        key: str | bytes,
        codec: Codec[V],
        field_of: Callable[[K], Word] = _field_of,
        key_of: Callable[[bytes], K] = _text_of,
        *,
        mutable: bool = False,
    ) -> None:
        self.change = change
        self.key = key
        self._codec = codec
        self._field_of = field_of
        self._key_of = key_of
        self._mutable = mutable  # values that are changed where they are
        self._fetched: dict[K, bytes | None] = {}
        self._used: dict[K, None] = {}
        self._values: dict[K, Any] = {}  # as this change has them: a value, or _ABSENT
        self._changed: dict[K, None] = {}
        self.deleted = 0
        change.add(self)

    def load(self, keys: Iterable[K]) -> None:
        """Fetch rows that will be asked for, in one round trip."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._fetched]
        commands: list[tuple[Word, ...]] = [
            ("HMGET", self.key, *map(self._field_of, missing[start : start + MOST_FIELDS]))
            for start in range(0, len(missing), MOST_FIELDS)
        ]
        replies = [row for reply in self.change.look_many(commands) for row in reply]
        self._fetched.update(zip(missing, replies, strict=True))

    def _value(self, key: K) -> Any:
        if key in self._values:
            return self._values[key]
        if key not in self._fetched:
            self.load([key])
        self._used[key] = None
        row = self._fetched[key]
        value = _ABSENT if row is None else self._codec.decode(row)
        self._values[key] = value
        return value

    def __getitem__(self, key: K) -> V:
        value = self._value(key)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._value(key) is not _ABSENT  # pyright: ignore[reportArgumentType]

    def __setitem__(self, key: K, value: V) -> None:
        self._values[key] = value
        self._changed[key] = None

    def __delitem__(self, key: K) -> None:
        if self._value(key) is _ABSENT:
            raise KeyError(key)
        self._values[key] = _ABSENT
        self._changed[key] = None
        self.deleted += 1

    def load_all(self) -> None:
        """Fetch every row; what others add meanwhile is not seen."""
        reply = self.change.look("HGETALL", self.key)
        rows = zip(reply[::2], reply[1::2], strict=True)
        for field, row in rows:
            self._fetched.setdefault(self._key_of(field), row)

    def __iter__(self) -> Iterator[K]:
        self.load_all()
        known = dict.fromkeys([*self._fetched, *self._values])
        return iter([key for key in known if self._value(key) is not _ABSENT])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def checks(self) -> None:
        used = list(self._used)
        for start in range(0, len(used), MOST_FIELDS):
            keys = used[start : start + MOST_FIELDS]
            words = ("HMGET", self.key, *map(self._field_of, keys))
            self.change.expect(words, [self._fetched[key] for key in keys])

    def flush(self) -> None:
        if self._mutable:
            for key, value in self._values.items():
                if value is not _ABSENT and self._codec.encode(value) != self._fetched.get(key):
                    self._changed[key] = None
        put: list[Word] = []
        gone: list[Word] = []
        for key in self._changed:
            value = self._values[key]
            if value is _ABSENT:
                gone.append(self._field_of(key))
            else:
                put += (self._field_of(key), self._codec.encode(value))
        write_in_parts(self.change, ("HSET", self.key), put, 2 * MOST_FIELDS)
        write_in_parts(self.change, ("HDEL", self.key), gone, MOST_FIELDS)


def write_in_parts(
    change: RedisChange, command: tuple[Word, ...], words: list[Word], most: int
) -> None:
    for start in range(0, len(words), most):
        change.write(*command, *words[start : start + most])


class Members(MutableSet[str]):
    """One set of texts."""

    def __init__(
        self,
        change: RedisChange,
        key: str,
        field_of: Callable[[str], Word] = _field_of,
        key_of: Callable[[bytes], str] = _text_of,
    ) -> None:
        self._change = change
        self._key = key
        self._field_of = field_of
        self._key_of = key_of
        self._kept: dict[str, bool] = {}  # as this change has them

    def __contains__(self, member: object) -> bool:
        if member not in self._kept:
            name = str(member)
            found = self._change.read("SISMEMBER", self._key, self._field_of(name))
            self._kept[name] = bool(found)
        return self._kept[str(member)]

    def load(self, members: Iterable[str]) -> None:
        """Fetch whether these are in it, in one round trip."""
        missing = [name for name in members if name not in self._kept]
        replies = self._change.read_many(
            [("SISMEMBER", self._key, self._field_of(name)) for name in missing]
        )
        self._kept.update(zip(missing, map(bool, replies), strict=True))

    def add(self, value: str) -> None:
        self._kept[value] = True
        self._change.write("SADD", self._key, self._field_of(value))

    def discard(self, value: str) -> None:
        if self._kept.get(value) is False:
            return
        self._kept[value] = False
        self._change.write("SREM", self._key, self._field_of(value))

    def __iter__(self) -> Iterator[str]:
        stored = map(self._key_of, self._change.read("SMEMBERS", self._key))
        names = dict.fromkeys(stored) | dict.fromkeys(self._kept)
        return iter([name for name in names if self._kept.get(name, True)])

    def __len__(self) -> int:
        return len(list(iter(self)))


class NestedRows(MutableMapping[str, Any]):
    """A hash for each name, and the set of these names."""

    def __init__(
        self, change: RedisChange, key: str, rows: Callable[[str], Rows[Any, Any]]
    ) -> None:
        self._change = change
        self._key = key
        self._names = Members(change, key)
        self._rows_of = rows
        self._open: dict[str, _Named] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._open:
            self._open[name] = _Named(self._rows_of(name), self._names, name)
        return self._open[name]

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002  pyright: ignore[reportIncompatibleMethodOverride]
        return self[key]

    def __setitem__(self, key: str, value: Any) -> None:
        raise NotImplementedError

    def pop(self, key: str, default: Any = None) -> Any:
        del self[key]
        return default

    def __delitem__(self, key: str) -> None:
        for each in list(self[key]):
            del self[key][each]
        self._names.discard(key)

    @property
    def deleted(self) -> int:
        return sum(rows.deleted for rows in self._open.values())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Named(MutableMapping[Any, Any]):
    """One of the hashes; its name is noted with the first row."""

    def __init__(self, rows: Rows[Any, Any], names: Members, name: str) -> None:
        self._rows = rows
        self._names = names
        self._name = name

    def __getitem__(self, key: Any) -> Any:
        return self._rows[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._noted:
            self._names.add(self._name)
            self._noted = True
        self._rows[key] = value

    _noted = False

    def __delitem__(self, key: Any) -> None:
        del self._rows[key]

    @property
    def deleted(self) -> int:
        return self._rows.deleted

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
