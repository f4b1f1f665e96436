"""Flows and nodes: rows as the memory broker has them, and what finds a flow.

fl              sorted set   every flow, by its id
fe              sorted set   flows that ended, by when
fs             sorted set   flows whose state ends by itself, by when
fn:<name>       sorted set   those of a name, by id: a hash of the name
fx:<property>   sorted set   those of a name with a property
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.brokers.memory.flows import MemoryFlows, StoredFlow, StoredNode
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.containers import Rows, packed
from penstock.brokers.redis.rows import id_bytes, id_of
from penstock.flows.flow import FlowPage, FlowRow
from penstock.flows.state import found_by, key_of, properties

ALL, ENDED, STATES = "fl", "fe", "fs"
_PAGE = 200
_NO_PROPERTY = ""


class FlowRows(Rows[str, StoredFlow]):
    """Every flow by its id; what finds it follows from its row."""

    def __init__(self, change: RedisChange) -> None:
        super().__init__(change, "flows", packed(StoredFlow), mutable=True)

    def flush(self) -> None:
        for flow, value in self._values.items():
            row = self._fetched.get(flow)
            old = {} if row is None else dict(_entries(self._codec.decode(row)))
            new = dict(_entries(value)) if isinstance(value, StoredFlow) else {}
            member = id_bytes(flow)
            for key in old.keys() - new.keys():
                self.change.write("ZREM", key, member)
            for key, score in new.items() - old.items():
                self.change.write("ZADD", key, score, member)
        super().flush()


def _entries(kept: StoredFlow) -> Iterator[tuple[str, float]]:
    yield ALL, 0
    if kept.ended_at is not None:
        yield ENDED, kept.ended_at
    if kept.state_until is not None:
        yield STATES, kept.state_until
    if kept.flow.name:
        yield _name_key(kept.flow.name), 0
        for name, text in properties(kept.flow.find):
            yield _property_key(kept.flow.name, name, text), 0


def _name_key(name: str) -> str:
    return f"fn:{key_of(name, _NO_PROPERTY, _NO_PROPERTY).hex()}"


def _property_key(flow: str, name: str, text: str) -> str:
    return f"fx:{key_of(flow, name, text).hex()}"


class RedisFlows(MemoryFlows):
    """Where all flows would be looked at, these look at an index."""

    def __init__(
        self, change: RedisChange, says: Callable[[str, bytes], None], now: Callable[[], float]
    ) -> None:
        self._change = change
        self._rows = FlowRows(change)
        self._node_rows = Rows[str, StoredNode](change, "nodes", packed(StoredNode), mutable=True)
        super().__init__(says, self._rows, self._node_rows, now)

    @property
    def deleted(self) -> int:
        """How many flows and nodes this change deletes."""
        return self._rows.deleted + self._node_rows.deleted

    def flow(self, flow_id: str) -> FlowRow | None:
        kept = self._rows.get(flow_id)
        self._node_rows.load(() if kept is None else kept.nodes)
        return super().flow(flow_id)

    def page(
        self, name: str | None, find: Mapping[str, str], after: str | None, limit: int
    ) -> FlowPage:
        found: list[FlowRow] = []
        for flow_id in self._newest(_narrowest(name, find), after):
            kept = self._rows.get(flow_id)
            if kept is None or name not in {None, kept.flow.name}:
                continue
            if found_by(kept.flow.find, find) and (row := self.flow(flow_id)) is not None:
                if len(found) == limit:
                    return FlowPage(found, found[-1].id)
                found.append(row)
        return FlowPage(found)

    def forget_ended(self, before: float) -> None:
        for member in self._change.look("ZRANGEBYSCORE", ENDED, "-inf", f"({before!r}"):
            kept = self._rows.get(id_of(member))
            if kept is not None and kept.ended_at is not None and kept.ended_at < before:
                self.forget(id_of(member))

    def forget_states(self, now: float) -> None:
        for member in self._change.look("ZRANGEBYSCORE", STATES, "-inf", now):
            if (kept := self._rows.get(id_of(member))) is not None:
                self._forget_state(kept, now)

    def _newest(self, key: str, after: str | None) -> Iterator[str]:
        high: Any = b"+" if after is None else b"(" + id_bytes(after)
        while True:
            found = self._change.look("ZREVRANGEBYLEX", key, high, "-", "LIMIT", 0, _PAGE)
            ids = [id_of(member) for member in found]
            self._rows.load(ids)
            yield from ids
            if len(found) < _PAGE:
                return
            high = b"(" + found[-1]


def _narrowest(name: str | None, find: Mapping[str, str]) -> str:
    if not name:
        return ALL
    for field, text in find.items():
        return _property_key(name, field, text)
    return _name_key(name)
