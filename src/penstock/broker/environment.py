"""The environment of a store, such as "production": a clone of it stays idle in another one.

The first process of an environment that runs jobs of a store which has none names it. Workers of
another environment refuse to start (`app.environment`), until a person adopts the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.broker.checks import check_name, legible

ENVIRONMENT_ID = "environment"


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a store; there is one such record, or none."""

    environment: str
    # Where the store was then, by shard (see `Traits.places`); only the doctor looks at it.
    places: Mapping[str, str] = {}
    author: str = ""
    reason: str = ""
    set_at: float = 0.0
    # Of one that is put, never kept: it takes the place of another environment.
    adopts: bool = False

    @property
    def id(self) -> str:
        return ENVIRONMENT_ID


def check_environment_name(record: Environment) -> None:
    check_name("environment", record.environment)


def signed(record: Environment, author: str, reason: str) -> Environment:
    return msgspec.structs.replace(record, author=legible(author), reason=legible(reason))


def replaced(before: Environment | None, given: Environment, now: float) -> Environment:
    """What is kept: the first name stands, unless somebody adopts the store."""
    if before is not None and not given.adopts:
        return before
    return msgspec.structs.replace(given, adopts=False, set_at=now)


def event_data(
    before: Environment | None, after: Environment | None, author: str, reason: str
) -> dict[str, Any]:
    """What the history says of a store that was named, adopted or let go."""
    named = (
        "named" if author else "declared"
    )  # by a person, or by the first program to run its jobs
    says = "let go" if after is None else named if before is None else "adopted"
    return {
        "environment": "" if after is None else after.environment,
        "before": "" if before is None else before.environment,
        "says": says,
        "author": legible(author),
        "reason": legible(reason),
    }
