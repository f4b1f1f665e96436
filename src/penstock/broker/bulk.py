"""Bulk: reads and writes of many rows in parallel, for Spark.

Writing: every process stages its part under the name of the write, one process commits all parts.
Reading: one process asks how far it may read (`reach`) and cuts that into `slices`; each slice is
scanned by a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import Reach, Selection, Slice
from penstock.broker.values import Committed, Epoch
from penstock.job import Job, Parcel


class Bulk(Protocol):
    """Reads and writes of many rows in parallel, for Spark."""

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> int:
        """Add these jobs to one part of a write; no other verb sees them until `commit_write`.

        They are checked as `enqueue` checks them. Jobs that the part has already are left as they
        are, so that the same call may be repeated.

        Without jobs nothing is added, and the answer is how many jobs the part has; else it is 0.
        """
        ...

    def commit_write(
        self, write: str, parts: Mapping[str, int], token: str = "", epoch: Epoch | None = None
    ) -> Committed:
        """Store the jobs of these parts, all or nothing, and delete the write's other parts.

        `parts` says how many jobs each part has; refused if the store has another number. Ids that
        were stored before, and jobs whose unique key is held, are left out as in `enqueue`. A write
        is committed once: a second call, whatever its parts, stores nothing. Returns how many jobs
        the write has, the `token` of the call that committed it, this one or an earlier one, and
        the jobs with derived ids that it left out although their bodies are not those stored.

        That it was committed is remembered for ever; of a write whose name begins with `UNNAMED`,
        until it is pruned. With `epoch`, the last epoch of the stream is remembered, and stands
        for all before it: those are committed, with 0 jobs and no token.
        """
        ...

    def discard(self, write: str) -> None:
        """Delete what is staged of a write; what was committed of it stays."""
        ...

    def get_many(self, ids: Sequence[str]) -> dict[str, Job[Any]]:
        """The jobs of these ids that the store has, each as `get` returns it."""
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
        """How far the history may be read from `after`: no row up to there is committed later.

        Transactions that are writing at this moment are waited for, at most `patience` seconds.
        With `at_most`, no more than so many rows of the selection are up to there, and `Reach.full`
        says that there are exactly so many. It is never behind `until`, and `after` itself where
        there is nothing more. Refused if `after` is no position of this history.
        """
        ...

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        """Cut a selection into about equal slices: every row is in exactly one.

        Of the history, the rows behind `after` up to and including `until`; None: all that there is
        when the slice is scanned.
        """
        ...

    def scan(self, part: Slice) -> Iterator[Any]:
        """The rows of a slice as Arrow record batches (`brokers.arrow`), declared secrets hidden.

        With the capability "scan as one look", all rows are as they were at one moment. Without, a
        job that moves on during the scan may be missed or come twice. Refused without pyarrow.
        """
        ...
