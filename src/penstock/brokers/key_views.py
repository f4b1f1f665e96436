"""The keys of a store as `penstock inspect` shows them: what they are for, and what is in one."""

from __future__ import annotations

import msgspec


class KeyFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of one purpose."""

    name: str
    type: str
    keys: int
    members: int
    bytes: int  # as the server estimates it
    holds: str


class KeyContent(msgspec.Struct, frozen=True, kw_only=True):
    """One key, with its first members, each as a value for people and programs."""

    name: str
    type: str
    members: int
    bytes: int
    holds: str
    shown: list[object]
