"""Frames in and out, for Spark: writes in parts that appear at once, and parallel reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import Reach, Selection, Slice
from penstock.job import Job, Parcel


class Bulk(Protocol):
    """Frames in and out, for Spark: writes in parts that appear at once, and parallel reads."""

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        """Keep these jobs as more of one part of a write, unseen until `commit_write`.

        They are checked as `enqueue` would. What this part holds already is left as it is, so that
        the same call may be made again.
        """
        ...

    def commit_write(self, write: str, parts: Mapping[str, int]) -> int:
        """Store what these parts of a write hold, all or nothing, and forget its other parts.

        `parts` says how many jobs each has; if one holds another number, all of it is refused. Ids
        that were stored before and standing unique jobs are left as they are. A write is committed
        once: again, whatever its parts, stores nothing. Returns how many jobs were committed.
        """
        ...

    def discard(self, write: str) -> None:
        """Forget what is staged of a write; what was committed of it stays."""
        ...

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,
        *,
        until: Position | None = None,
    ) -> Reach:
        """How far the history may be read from `after`: every row up to there is committed.

        Rows of whoever commits later are behind it; those who write at this moment have so many
        seconds to end. With `at_most`, no more of the selection's rows than that are in between,
        and `Reach.full` says whether so many are. With `until`, it is not behind that. It is
        `after` itself while there is nothing more. Refused if `after` is not of this history.
        """
        ...

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        """Cut what is wanted into about equal parts: no row is in two, none of it in no part.

        Of the history from `after` up to and with `until`; None is all that there is by the time it
        is read.
        """
        ...

    def scan(self, part: Slice) -> Iterator[Any]:
        """The rows of a slice, of one look at the store, as Arrow record batches (`brokers.arrow`).

        Of an attempt or a job as they are stored, but secrets. Refused where there is no pyarrow.
        """
        ...
