"""The stream reader, which needs the read limits of Spark 4.2.

An offset names its store, so that a checkpoint of another is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import HISTORY
from penstock.errors import Refused
from penstock.spark.one_sentence import without_traceback
from penstock.spark.source.readers import SlicePartition, SliceReader, whole_number
from penstock.spark.source.shards import store_id

ROWS_PER_TRIGGER = 1_000_000
Offset = dict[str, Position]  # the store's id -> the position up to which it was read


class TableStream(SliceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table of the history, never beyond a transaction that is still open."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        table = options.get("table", "")
        if table not in HISTORY:
            raise Refused(
                f'option("table", {table!r}): only attempts, events and gauges can be read as a'
                " stream; read the others with spark.read"
            )
        for end in ("until", "until_position"):
            if options.get(end) is not None:
                raise Refused(f"option {end!r} is for spark.read: a stream has no end")
        super().__init__(options, schema)
        self._after = options.get("after", BEGINNING)
        self._rows = whole_number(options, "rows_per_trigger") or ROWS_PER_TRIGGER
        self._last: Position | None = None  # with availableNow: the end of the run

    @without_traceback()
    def initialOffset(self) -> Offset:  # noqa: N802
        with self._open_store() as broker:
            return {store_id(broker, self._after): self._after}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows)

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._open_store() as broker:
            self._last = broker.reach(self._selection).position

    @without_traceback()
    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if rows is None and not isinstance(limit, ReadAllAvailable):
            rows = self._rows
        with self._open_store() as broker:
            after = self._after if start is None else _position(broker, start)
            reach = broker.reach(self._selection, after, rows, patience=0, until=self._last)
            return {reach.store: reach.position}

    @without_traceback()
    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """Where a query would be that has read all: in Spark's progress, beside its `endOffset`."""
        with self._open_store() as broker:
            reach = broker.reach(self._selection, patience=0)
            return {reach.store: reach.position}

    @without_traceback()
    def partitions(self, start: Offset, end: Offset) -> Sequence[SlicePartition]:
        with self._open_store() as broker:
            return self.parts(broker, _position(broker, start), _position(broker, end))


def _position(broker: Broker, offset: Offset) -> Position:
    """The position of an offset; refused if the offset is of another store."""
    store = store_id(broker)
    if store not in offset:
        named = ", ".join(offset)
        raise Refused(
            f"the checkpoint is of the store {named}, and this is the store {store}: positions of"
            " one mean nothing in the other; give this query a checkpoint of its own"
        )
    position = str(offset[store])  # from a JSON file: it may be anything
    store_id(broker, position)
    return position
