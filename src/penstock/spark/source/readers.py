"""Readers of the data source, in batch and as a stream.

Spark pickles a reader and sends it around: it holds options and values alone, and opens the store
wherever it needs it. Offsets name the store that they are of, so that a checkpoint is never gone on
with in another one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.app.locate import load_app
from penstock.app.settings import mask
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import HISTORY, Selection, Slice
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.flows.flow import member_of
from penstock.spark.session_store import named_store
from penstock.spark.source.options import NARROWING, narrowed_by
from penstock.spark.source.table_batches import Shape
from penstock.spark.source.tables import columns_of, streamed, table_named

SLICES = 8
ROWS_PER_TRIGGER = 1_000_000
FEW_ROWS = 20_000  # are read by one task: another one costs as much as reading them
_MOST = Selection(table="attempts")  # what most of a history is: looking for it ends soon
_KNOWN = frozenset(
    {
        *("after", "app", "flow", "node", "profile", "rows_per_trigger", "slices", "table"),
        *("until_position", "url", *NARROWING),
    }
)
_OF_BODIES = frozenset({"arguments", "headers", "flow", "node", "result"})
Offset = dict[str, Position]  # the store's id: the position that is read


class SlicePartition(InputPartition):
    """A slice, and the store that it was cut from."""

    def __init__(self, store: str, part: Slice) -> None:
        super().__init__(None)
        self.store = store
        self.part = part


class StoreOptions:
    """The options that say which store is meant."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._profile = options.get("profile")
        self._url = options.get("url")
        self._app = options.get("app")
        if self._app is not None and (self._profile or self._url):
            raise Refused("app already says where the store is: leave out profile and url")

    @contextmanager
    def open(self) -> Generator[Broker]:
        """The store; a sentence without any password where it cannot be opened."""
        if self._app is not None:
            url = load_app(self._app).resolved_url.url
        else:
            url = named_store(self._profile, self._url).url
        try:
            broker = open_broker(url, create=False)
        except Exception as error:
            raise Refused(f"{mask(url)} cannot be opened: {error}") from None
        try:
            yield broker
        finally:
            broker.close()


class SliceReading:
    """What a batch and a stream read alike: the rows of a slice."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        _check_options(options)
        self._place = StoreOptions(options)
        self._schema = schema
        self._slices = _number(options, "slices") or SLICES
        table = table_named(options.get("table", ""))
        self._narrowing = narrowed_by(options, table)
        self._selection = Selection(
            table=table,
            flow=options.get("flow"),
            node=options.get("node"),
            bodies=bool(
                _OF_BODIES & {field.name for field in schema} or {"flow", "node"} & set(options)
            ),
            **self._narrowing.fields(),
        )
        _check(table, schema)
        if table in HISTORY and {"flow", "node"} & set(options):
            raise Refused('options "flow" and "node" are for the tables jobs and results')

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, SlicePartition):  # of nothing at all Spark makes one, too
            return
        table = self._selection.table
        types: Any = import_module("pyspark.sql.pandas.types")
        schema = types.to_arrow_schema(self._schema, timezone="UTC")
        shape = Shape(table, partition.store, schema)
        narrow = partition.part.selection
        with self._place.open() as broker:
            for stored in broker.scan(partition.part):
                yield shape.batch(_of_flow(self._narrowing.rows_of(stored), narrow))

    def parts(
        self, broker: Broker, after: Position, until: Position | None
    ) -> list[SlicePartition]:
        """What is to be read, in about as many parts as were asked for."""
        selection, at_most = self._selection, self._slices
        if selection.table in HISTORY:
            many = broker.reach(_MOST, after, FEW_ROWS, patience=0, until=until).full
            at_most = at_most if many else 1
        store = _store_of(broker)
        return [
            SlicePartition(store, part) for part in broker.slices(selection, after, until, at_most)
        ]


class TableReader(SliceReading, DataSourceReader):
    """A table as it is now."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._after = options.get("after", BEGINNING)
        self._until = options.get("until_position")

    def partitions(self) -> Sequence[SlicePartition]:
        with self._place.open() as broker:
            return self.parts(broker, self._after, self._until)


class TableStream(SliceReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A table of the history as it grows; never beyond where somebody may still write."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        streamed(options.get("table", ""))
        for end in ("until", "until_position"):
            if options.get(end) is not None:
                raise Refused(f"option {end!r} is for spark.read: a stream has no end")
        super().__init__(options, schema)
        self._after = options.get("after", BEGINNING)
        self._rows = _number(options, "rows_per_trigger") or ROWS_PER_TRIGGER
        self._last: Position | None = None  # where a run that reads what there is now ends

    def initialOffset(self) -> Offset:  # noqa: N802
        with self._place.open() as broker:
            return {_store_of(broker, self._after): self._after}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self._place.open() as broker:
            self._last = broker.reach(self._selection).position

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: N802
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if rows is None and not isinstance(limit, ReadAllAvailable):
            rows = self._rows
        with self._place.open() as broker:
            after = self._after if start is None else _position(broker, start)
            reach = broker.reach(self._selection, after, rows, patience=0, until=self._last)
            return {reach.store: reach.position}

    def partitions(self, start: Offset, end: Offset) -> Sequence[SlicePartition]:
        with self._place.open() as broker:
            return self.parts(broker, _position(broker, start), _position(broker, end))


def _store_of(broker: Broker, after: Position = BEGINNING) -> str:
    """The store's id; refused if it has not come to this position."""
    return broker.reach(_MOST, after, at_most=1, patience=0).store


def _position(broker: Broker, offset: Offset) -> Position:
    """The position that an offset names in this very store."""
    store = _store_of(broker)
    if store not in offset:
        named = ", ".join(offset)
        raise Refused(
            f"the checkpoint is of the store {named}, and this is the store {store}: positions of"
            " one mean nothing in the other; give this query a checkpoint of its own"
        )
    position = str(offset[store])  # of JSON: it may be anything
    _store_of(broker, position)
    return position


def _of_flow(stored: Any, narrow: Selection) -> Any:
    """The rows of a flow or a node: a store gives what lies among them as well."""
    if narrow.flow is None and narrow.node is None:
        return stored
    members = [member_of((body or "").encode()) for body in stored.column("body").to_pylist()]
    wanted = [
        place
        for place, member in enumerate(members)
        if member is not None
        and narrow.flow in {None, member.id}
        and narrow.node in {None, member.node}
    ]
    return stored.take(wanted)


def _check(table: str, schema: StructType) -> None:
    """Refuse columns that the table has not; fewer of them are quicker to read."""
    known = columns_of(table)
    for field in schema:
        kind = field.dataType.simpleString()
        has = known.get(field.name)
        if has != kind:
            says = "has no such column" if has is None else f"has it as {has}"
            raise Refused(f"column {field.name} {kind}: the table {table} {says}")


def _check_options(options: Mapping[str, str]) -> None:
    """Refuse what nobody would heed; names with a dot, and the path, are Spark's own."""
    for name in sorted(name.lower() for name in options):
        if name not in _KNOWN and name != "path" and "." not in name:
            near = get_close_matches(name, _KNOWN, 1) or [", ".join(sorted(_KNOWN))]
            raise Refused(f"option {name!r} is not known to the source; there is {near[0]}")
    for name in ("after", "until_position"):
        if options.get(name) is not None and options.get("table") not in HISTORY:
            raise Refused(
                f"option {name!r} is a position of the history: only attempts, events and gauges"
                " have one"
            )


def _number(options: Mapping[str, str], name: str) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not given.strip().isdecimal():
        raise Refused(f'option("{name}", {given!r}): a whole number, 0 or more')
    return int(given)
