"""What the shared verbs need of a store: transactions to execute statements in, rows by name.

Rows are read by name alone: one store's are tuples, another's are dicts. Statements are in
the store's own dialect; parameters are a tuple or, for named ones, a mapping.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from penstock.app.clock import AnyClock
from penstock.broker.traits import Traits
from penstock.brokers.tables.statements import Statements
from penstock.job import Lane


class Row(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


class Cursor(Protocol):
    """What a statement answered."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> Sequence[Row]: ...

    def __iter__(self) -> Iterator[Row]: ...


class Db(Protocol):
    """One transaction."""

    def execute(self, statement: str, parameters: Any = ()) -> Cursor: ...

    def executemany(self, statement: str, parameters: Iterable[Any]) -> None: ...

    def each(self, statement: str, parameters: Iterable[Any]) -> Sequence[Row | None]:
        """The first row, or None, for each set of parameters, executed in this order."""
        ...

    def every(self, statement: str, parameters: Iterable[Any]) -> Sequence[Sequence[Row]]:
        """All rows, for each set of parameters, executed in this order."""
        ...

    def insert(self, statement: str, width: int, values: Sequence[Any]) -> None:
        """Insert many rows: their values one row after the other, so many to a row."""
        ...


class TableStore(Protocol):
    """The database behind a broker, and what its parts share."""

    @property
    def traits(self) -> Traits: ...

    @property
    def sql(self) -> Statements: ...

    @property
    def clock(self) -> AnyClock: ...

    @property
    def boot(self) -> str:
        """The boot of the machine that leases are of: lease time starts at zero with each boot."""
        ...

    def lease_time(self) -> float:
        """Monotonic time for leases; changes of the wall clock do not move it."""
        ...

    def writing(self, *, durable: bool = True) -> AbstractContextManager[Db]:
        """A transaction that writes; all of it is kept, or nothing."""
        ...

    def reading(self) -> AbstractContextManager[Db]:
        """A read transaction: one consistent view of the store."""
        ...

    def lane(self, db: Db, number: int) -> Lane:
        """The lane of this hash."""
        ...

    def rules_changed(self, *, stop: bool) -> None:
        """After a commit: every worker reads the rules again before it starts another job.

        `stop`: return only when workers that read the old rules have started their jobs.
        """
        ...

    def follow(self) -> None:
        """Reopen if another database took the place of this one (a replaced file)."""
        ...

    def forget_claimable(self, lanes: Collection[int] = ()) -> None:
        """Jobs became ready: drop what this process remembers about lanes with work."""
        ...

    def notify(self, lanes: Collection[int] = ()) -> None:
        """After a commit: wake waiting workers; there may be work in these lanes."""
        ...


def durable(store: TableStore, queues: Iterable[str]) -> bool:
    """Whether a commit about jobs of these queues waits for the disk."""
    relaxed = store.traits.relaxed
    return not relaxed or not relaxed.issuperset(queues)
