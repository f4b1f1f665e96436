"""A flow's state as a value of the type that its members know, and as JSON.

A member may know the type or not: what is stored is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.enqueue.codec import ResultCodec
from penstock.enqueue.json_faults import is_pydantic
from penstock.errors import Refused


class StateCodec:
    """A type of state, and its JSON. Without one the state is a dict."""

    def __init__(self, name: str, kind: Any = None) -> None:
        self.kind: Any = dict[str, Any] if kind is None else kind
        self._what = f"state of flow {name}" if name else "state"
        self._codec = ResultCodec(self.kind, self._what)
        self._names = _names_of(self.kind)

    def encode(self, value: Any) -> bytes:
        return self._codec.encode(value)

    def decode(self, state: bytes) -> Any:
        return self._codec.decode(state)

    def check(self, changes: Mapping[str, Any], after: bytes) -> None:
        """Refuse changes that name what the state does not have, or leave it as what it is not."""
        unknown = changes.keys() - self._names if self._names else set[str]()
        if unknown:
            raise Refused(
                f"{self._what}: {self.kind.__name__} has no {', '.join(sorted(unknown))};"
                f" it has {', '.join(sorted(self._names))}"
            )
        self.decode(after)


def _names_of(kind: Any) -> frozenset[str]:
    """The fields of a type, as they stand in its JSON; none of one that takes any."""
    if isinstance(kind, type) and issubclass(cast("type[Any]", kind), msgspec.Struct):
        return frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    if is_pydantic(kind):
        fields = cast("Mapping[str, Any]", kind.model_fields)
        return frozenset(field.alias or name for name, field in fields.items())
    if dataclasses.is_dataclass(kind):
        return frozenset(field.name for field in dataclasses.fields(kind))
    return frozenset()
