"""Reads a table in slices, one for each Spark task; stream.py reads them one after the other.

Spark pickles a reader and sends it to executors: it holds options and values only, and opens the
store where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.app.locate import load_app
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import HISTORY, Selection, Slice
from penstock.brokers.sharded import ShardedBroker
from penstock.brokers.sharded.bulk import of_shard
from penstock.errors import Refused
from penstock.flows.flow import member_of
from penstock.spark.one_sentence import without_traceback
from penstock.spark.session_store import named_store, opened_store
from penstock.spark.source.options import FILTERS, row_filter
from penstock.spark.source.shards import ONLY, store_id, stores_in
from penstock.spark.source.table_batches import TableBatches
from penstock.spark.source.tables import arrow_schema, columns_of, table_named

SLICES = 8
FEW_ROWS = 20_000  # are read by one Spark task: starting another costs as much as reading them
_ATTEMPTS = Selection(table="attempts")  # most rows of a history: a search for one ends soon
_KNOWN = frozenset(
    {
        *("after", "app", "flow", "node", "profile", "rows_per_trigger", "slices", "table"),
        *("until_position", "url", *FILTERS),
    }
)
_BODY_COLUMNS = frozenset({"arguments", "headers", "flow", "node", "result"})


class SlicePartition(InputPartition):
    """An input partition: a slice, the id of its store, and the name of that among shards."""

    def __init__(self, store: str, part: Slice, shard: str = ONLY) -> None:
        super().__init__(None)
        self.store = store
        self.part = part
        self.shard = shard


class SliceReader:
    """What batch and stream readers share: cutting into slices, and reading one."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        _check_options(options)
        self._profile, self._url = options.get("profile"), options.get("url")
        self._app = options.get("app")
        if self._app is not None and (self._profile or self._url):
            raise Refused("option app already names the store: leave out profile and url")
        self._schema = schema
        self._slices = whole_number(options, "slices") or SLICES
        table = table_named(options.get("table", ""))
        self._filter = row_filter(options, table)
        self._selection = Selection(
            table=table,
            flow=options.get("flow"),
            node=options.get("node"),
            bodies=bool(
                _BODY_COLUMNS & {field.name for field in schema} or {"flow", "node"} & set(options)
            ),
            **self._filter.selection_fields(),
        )
        _check_schema(table, schema)
        if table in HISTORY and {"flow", "node"} & set(options):
            raise Refused('options "flow" and "node" are for the tables jobs and results')

    def _open_store(self) -> AbstractContextManager[Broker]:
        if self._app is not None:
            return opened_store(load_app(self._app).resolved_url.url)
        return opened_store(named_store(self._profile, self._url).url)

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(
            partition, SlicePartition
        ):  # Spark makes one of its own if there are none
            return
        table = self._selection.table
        columns = (f"{field.name} {field.dataType.simpleString()}" for field in self._schema)
        schema = arrow_schema(", ".join(columns))
        batches = TableBatches(table, partition.store, schema)
        with without_traceback(), self._open_store() as broker:
            store = stores_in(broker).get(partition.shard)
            if store is None:
                raise Refused(f"this process knows no shard {partition.shard!r} of the store")
            for stored in store.scan(partition.part):
                rows = _of_flow(self._filter.apply(stored), partition.part.selection)
                yield batches.convert(rows)

    def parts(
        self, broker: Broker, after: Position, until: Position | None, shard: str = ONLY
    ) -> list[SlicePartition]:
        """The input partitions between two positions: about as many as the option `slices`.

        `shard` is the name of the broker, where it is one of the shards that executors will open.
        """
        selection, at_most = self._selection, self._slices
        if selection.table in HISTORY:
            many = broker.reach(_ATTEMPTS, after, FEW_ROWS, patience=0, until=until).full
            at_most = at_most if many else 1
        parts = broker.slices(selection, after, until, at_most)
        if not isinstance(broker, ShardedBroker):
            store = store_id(broker)
            return [SlicePartition(store, part, shard) for part in parts]
        ids = {name: store_id(store) for name, store in stores_in(broker).items()}
        return [SlicePartition(ids[name], part, name) for name, part in map(of_shard, parts)]


class TableReader(SliceReader, DataSourceReader):
    """Reads a table as it is now, of the history only what no open transaction can add to.

    So whoever reads on from the last position that it saw misses nothing.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._after = options.get("after", BEGINNING)
        self._until = options.get("until_position")

    @without_traceback()
    def partitions(self) -> Sequence[SlicePartition]:
        with self._open_store() as broker:
            until = self._until
            if self._selection.table in HISTORY:
                until = broker.reach(self._selection, self._after, until=until).position
            return self.parts(broker, self._after, until)


def _of_flow(stored: Any, selection: Selection) -> Any:
    """Only the rows of the selected flow or node: a store may give others between them."""
    if selection.flow is None and selection.node is None:
        return stored
    members = [member_of((body or "").encode()) for body in stored.column("body").to_pylist()]
    indices = [
        index
        for index, member in enumerate(members)
        if member is not None
        and selection.flow in {None, member.id}
        and selection.node in {None, member.node}
    ]
    return stored.take(indices)


def _check_schema(table: str, schema: StructType) -> None:
    """Refuse columns that the table does not have, or has with another type."""
    known = columns_of(table)
    for field in schema:
        kind = field.dataType.simpleString()
        has = known.get(field.name)
        if has != kind:
            problem = "has no such column" if has is None else f"has it as {has}"
            raise Refused(f"column {field.name} {kind}: the table {table} {problem}")


def _check_options(options: Mapping[str, str]) -> None:
    """Refuse options that would have no effect; `path` and names with a dot are Spark's own."""
    for name in sorted(name.lower() for name in options):
        if name not in _KNOWN and name != "path" and "." not in name:
            near = get_close_matches(name, _KNOWN, 1) or [", ".join(sorted(_KNOWN))]
            raise Refused(f"option {name!r} is not an option of the source; there is {near[0]}")
    for name in ("after", "until_position"):
        if options.get(name) is not None and options.get("table") not in HISTORY:
            raise Refused(
                f"option {name!r} is a position of the history: only attempts, events and gauges"
                " have one"
            )


def whole_number(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.strip().isdecimal():
        raise Refused(f'option("{name}", {given!r}): a whole number, 0 or more')
    return int(given)
