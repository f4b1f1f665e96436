"""The condition of a store, seen from outside: for `penstock doctor` and `penstock migrate`.

Looking changes nothing: no file is made, no migration is run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Trouble(msgspec.Struct, frozen=True):
    """Something that is not as it should be, and what to do about it."""

    says: str
    remedy: str
    grave: bool = True  # False: it works, only less well
    name: str = "settings"  # what it is about


class Fact(msgspec.Struct, frozen=True):
    """Something that was looked at and is well, or was not to be seen."""

    name: str
    says: str
    hint: str = ""  # what could be better


class StoreCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What a store promises, and the facts that the promise rests on."""

    kind: str  # "sqlite", "postgres", "memory", or what another package calls its store
    where: str  # fit to be shown
    promise: str  # one sentence: what a job that was accepted survives
    exists: bool
    schema: int | None = None  # where it stands; None: no store yet, or it keeps none
    newest: int | None = None  # where this Penstock would bring it
    pending: tuple[str, ...] = ()  # what an open applies first
    pending_post: tuple[str, ...] = ()  # what waits until the workers of an older Penstock are gone
    too_new: bool = False  # a newer Penstock took away what this one needs
    settings: Mapping[str, str] = {}  # what the store says about itself
    unseen: Trouble | None = None  # why it could not be looked at; then nothing else is known
    trouble: tuple[Trouble, ...] = ()
    facts: tuple[Fact, ...] = ()
