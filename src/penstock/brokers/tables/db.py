"""What the shared verbs ask of a store: a transaction to execute statements in, and rows by name.

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
        """What leases are valid within: the time they are kept in starts anew with another one."""
        ...

    def lease_time(self) -> float:
        """The time that leases run in; no jump of a wall clock moves it."""
        ...

    def writing(self, *, durable: bool = True) -> AbstractContextManager[Db]:
        """A transaction that writes; all of it is kept, or nothing."""
        ...

    def reading(self) -> AbstractContextManager[Db]:
        """One consistent look at the store."""
        ...

    def lane(self, db: Db, number: int) -> Lane:
        """The words behind a lane's hash."""
        ...

    def rules_changed(self, *, stop: bool) -> None:
        """Committed: every worker is to look at the rules again before it starts anything.

        `stop`: return when those who looked at them before have begun what they begin.
        """
        ...

    def follow(self) -> None:
        """Go over to another database that took the place of this one, where that can be."""
        ...

    def forget_claimable(self, lanes: Collection[int] = ()) -> None:
        """Jobs became ready: what this process remembers about lanes to claim from is outdated."""
        ...

    def notify(self, lanes: Collection[int] = ()) -> None:
        """After a commit: wake waiting workers, since there may be work in these lanes."""
        ...


def durable(store: TableStore, queues: Iterable[str]) -> bool:
    """Whether a commit about jobs of these queues waits for the disk."""
    relaxed = store.traits.relaxed
    return not relaxed or not relaxed.issuperset(queues)
