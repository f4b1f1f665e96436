"""Tables of the user's own that are queues: each row that is inserted becomes a job.

What a job is made of is kept by the database, with the trigger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec


class RowJobs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the jobs of a table's rows are made of: names of columns."""

    task: str
    app: str = ""
    queue: str = "default"
    priority: int = 0
    version: int = 1
    args: Mapping[str, str] | None = None  # argument: column; None: every column is an argument
    key: str | None = None
    unique: str | None = None
    at: str | None = None  # a time, or a number of nanoseconds since 1970
    tags: Mapping[str, str] = {}
    secret: tuple[str, ...] = ()  # arguments that are never shown

    def encode(self) -> str:
        """With what is as usual, too: the database knows no defaults."""
        fields = msgspec.structs.asdict(self)
        said = {name: value for name, value in fields.items() if value is not None}
        return msgspec.json.encode(said).decode()


class AttachedTable(msgspec.Struct, frozen=True):
    """A table, and what its rows become."""

    table: str
    jobs: RowJobs
    enabled: bool = True


class Attaching(Protocol):
    """A database whose tables can be queues."""

    def attach(self, table: str, jobs: RowJobs, *, dry_run: bool = False) -> str:
        """From now on its new rows are jobs; returns the SQL. Repeating it replaces the trigger."""
        ...

    def detach(self, table: str, task: str | None = None, *, dry_run: bool = False) -> str | None:
        """New rows are no jobs any more, of this task or of any; None if they were none."""
        ...

    def attached(self) -> list[AttachedTable]: ...
