"""Datasets: `@app.dataset` over a function that makes one partition of a table.

A dataset is a task whose argument is a partition: its runs are jobs like all others. What is its
own is said here, checked when the module is imported, and imports no Spark.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, cast

import msgspec

from penstock.errors import Refused
from penstock.task.dataset_graph import DatasetNode, Graph, Partition, Ref
from penstock.task.dataset_plan import Made, PipelineRun
from penstock.task.interval import Interval, Timeline, check_partition
from penstock.task.option_checks import check_seconds
from penstock.task.option_types import DatasetOptions
from penstock.task.signature import hints_of, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.app.app import App
    from penstock.task.task import Task

P = ParamSpec("P")

DATASETS = "datasets"  # the queue of their jobs, where they name none
_TABLE_CHARACTERS = frozenset("*?[]{}\\")
_OBJECT_STORES = ("s3", "gs", "abfss")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Expect(msgspec.Struct, frozen=True):
    """A condition in Spark's SQL that every row is to meet, but for `at_most` of them.

    Rows for which it is null do not meet it. More than that fail the run before anything is
    committed, or with `on_failure="warn"` are only counted.
    """

    condition: str
    at_most: int = 0
    on_failure: Literal["fail", "warn"] = "fail"
    name: str = ""

    @property
    def title(self) -> str:
        return self.name or self.condition


class Source(msgspec.Struct, frozen=True):
    """An input that is no dataset: `read(spark, interval)` gives its frame.

    `version(interval)` names what is there now, as a digest of file names and sizes: another name
    makes what was made of it stale. Without one it never does.
    """

    read: Callable[..., Any]
    version: Callable[..., str] | None = None

    @property
    def name(self) -> str:
        return getattr(self.read, "__name__", "source")


class Past(msgspec.Struct, frozen=True):
    """Of an input the partitions up to so many before; made by `dataset.past(7)`."""

    dataset: str
    count: int
    zone: str | None = None  # of its partitions


class AskedPartitions(NamedTuple):
    """What a call of `run` asked for: these datasets, and which of their partitions."""

    wanted: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None


class Dataset(Generic[P]):
    """A table that a function makes, one partition at a time; made by `@app.dataset`."""

    task: Task[..., Any]

    def __init__(self, app: App, function: Callable[..., Any], options: DatasetOptions) -> None:
        self.app = app
        self.function = function
        self.name = options.get("name") or name_of(function)
        what = f"dataset {self.name}"
        for required in ("partition", "table"):
            if required not in options:
                raise Refused(f"@app.dataset over {function.__qualname__}: give it {required}=...")
        inputs = _listed(what, "inputs", options.get("inputs", ()))
        self.partitions = check_partition(
            what, options.get("partition"), options.get("zone") or _zone_of(inputs)
        )
        self.table = _check_table(what, options.get("table", ""))
        self.inputs = tuple(_input(what, each, app) for each in inputs)
        after = _listed(what, "after", options.get("after", ()))
        self.previous = "previous" in after
        self.after = tuple(_ref(what, each, app) for each in after if each != "previous")
        self.checks = _checks(what, options.get("check"))
        self.start = _check_start(what, self.partitions, options.get("start"))
        self.freshness = check_seconds("freshness", options.get("freshness"))
        self.spark = options.get("spark")
        if self.previous and not isinstance(self.partitions, Timeline):
            raise Refused(f'{what}: after="previous", and names have no order')
        self._check_parameters()
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __call__(self, spark: SparkSession, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """A plain call: the frame of a partition, and nothing is written."""
        return self.function(spark, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<dataset {self.name}>"

    def past(self, count: int) -> Past:
        """As an input: the partitions at the same time, and so many in all up to there."""
        if type(count) is not int or count < 1:
            raise Refused(f"past({count!r}) of dataset {self.name}: 1 or more partitions")
        line = self.partitions
        return Past(self.name, count, line.zone if isinstance(line, Timeline) else None)

    def run(
        self,
        first: str | date | None = None,
        last: str | date | None = None,
        *,
        again: bool = False,
        max_running: int | None = None,
    ) -> PipelineRun:
        """Enqueue what is missing or stale from one partition to another, both included.

        What it needs is enqueued first, and the rest follows by itself. Asked twice, nothing is
        new. `again`: also partitions that are current. At most `max_running` runs at a time, 4
        where nobody said so far.
        """
        from penstock.spark.datasets.run import fill

        since, until = (_bound(self, each) for each in (first, last))
        return fill(
            self.app,
            [self.name],
            since=None if since is None else since.start.timestamp(),
            until=None if until is None else until.end.timestamp(),
            again=again,
            max_running=max_running,
        )

    @property
    def node(self) -> DatasetNode:
        """What it says of itself, as a value."""
        return DatasetNode(
            name=self.name,
            partitions=self.partitions,
            inputs=tuple(each for each in self.inputs if isinstance(each, Ref)),
            after=self.after,
            previous=self.previous,
            start=self.start,
            code=self.task.version,
            sources=len(self.sources),
        )

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The inputs that are no datasets."""
        return tuple(each for each in self.inputs if isinstance(each, Source))

    @cached_property
    def place(self) -> Path | str:
        """The folder of its table, or its URL."""
        return self.table if "://" in self.table else self.app.beside_project(self.table)

    def argument(self, partition: Partition) -> Any:
        """What the function gets as its second parameter: by its annotation."""
        name = list(inspect.signature(self.function).parameters)[1]
        hint = hints_of(self.function, {}, (name,)).get(name, Interval)
        if not isinstance(partition, Interval):
            return partition
        return {date: partition.day, datetime: partition.start, str: partition.text}.get(
            hint, partition
        )

    def _check_parameters(self) -> None:
        parameters = list(inspect.signature(self.function).parameters.values())
        by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        wanted = 2 + len(self.inputs)
        if len(parameters) != wanted or any(each.kind not in by_position for each in parameters):
            inputs = "".join(f", input{n + 1}" for n in range(len(self.inputs)))
            raise Refused(
                f"dataset {self.name}: its function takes (spark, interval{inputs}), which are"
                f" {wanted} parameters, and {self.function.__qualname__} has"
                f" ({', '.join(each.name for each in parameters)})"
            )


def _bound(dataset: Dataset[...], given: str | date | None) -> Interval | None:
    if given is None:
        return None
    if not isinstance(dataset.partitions, Timeline):
        raise Refused(f"run({given!r}): the partitions of dataset {dataset.name} are names")
    return dataset.partitions.parse(given.isoformat() if isinstance(given, date) else given)


def runner_of(dataset: Dataset[...]) -> Callable[..., Made | PipelineRun]:
    """The function of its task: makes a partition; without one, enqueues what is to be made."""

    def runner(
        partition: str | None = None,
        again: int = 0,
        wanted: Sequence[str] = (),
        since: float | None = None,
        until: float | None = None,
    ) -> Made | PipelineRun:
        from penstock.spark.datasets.run import fill, make_partition

        if partition is None:
            return fill(dataset.app, [dataset.name])
        return make_partition(
            dataset, partition, again, AskedPartitions(tuple(wanted), since, until)
        )

    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(runner, attribute, getattr(dataset.function, attribute))
    runner.__annotations__ = {
        "partition": str | None,
        "again": int,
        "wanted": list[str],
        "since": float | None,
        "until": float | None,
        "return": Made | PipelineRun,
    }
    return runner


def graph_of(datasets: Iterable[Dataset[...]]) -> Graph:
    """These datasets as a graph; refused if they do not fit together, or share a table."""
    homes: dict[Path | str, str] = {}
    known = list(datasets)
    for dataset in known:
        other = homes.setdefault(dataset.place, dataset.name)
        if other != dataset.name:
            raise Refused(
                f"datasets {other} and {dataset.name} have one table, {dataset.table}: each needs"
                " a folder of its own"
            )
    return Graph(dataset.node for dataset in known)


def _check_table(what: str, table: object) -> str:
    text = str(table) if isinstance(table, str | Path) else ""
    if not text.strip():
        raise Refused(
            f"{what}: table={table!r}: the folder of its table, as lake/rides, or a URL, as"
            " s3://bucket/rides"
        )
    if url := _SCHEME.match(text):
        return _check_url(what, url[0], text)
    if special := set(text) & _TABLE_CHARACTERS:
        raise Refused(f"{what}: table={table!r}: Spark reads {min(special)} as a pattern")
    return text


def _check_url(what: str, scheme: str, text: str) -> str:
    """A URL of an object store. One that is refused is not shown: it may have a password."""
    if scheme == "jdbc:":
        raise Refused(
            f"{what}: table= names a JDBC table, which cannot be replaced by partition in one step"
            " with the run that made it: give it a folder or a URL, and copy from it to the"
            " database in a Spark task"
        )
    if scheme.removesuffix(":") not in _OBJECT_STORES or not text.startswith(f"{scheme}//"):
        known = ", ".join(f"{each}://" for each in _OBJECT_STORES)
        raise Refused(
            f"{what}: table= begins with {scheme} and a table is in a folder that all machines"
            f" share, or at a URL, a text that begins with {known}"
        )
    host, _, path = text.removeprefix(f"{scheme}//").partition("/")
    user, at, _ = host.rpartition("@")
    if ":" in user or "?" in text or "#" in text or (at and scheme != "abfss:"):
        raise Refused(
            f"{what}: table= has more than a place in its URL: credentials and other settings"
            " belong in PENSTOCK_STORAGE_OPTIONS, where its workers run"
        )
    if not host or not path.strip("/"):
        raise Refused(
            f"{what}: table={text!r}: a bucket and a path in it, as in {scheme}//bucket/rides"
        )
    return text.rstrip("/")


def _listed(what: str, name: str, given: object) -> Sequence[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise Refused(f"{what}: {name}={given!r}: write a list, {name}=[...]")
    return cast("Sequence[Any]", given)


def _zone_of(inputs: Sequence[Any]) -> str:
    """The zone of the first input that has one."""
    return next((zone for each in inputs if (zone := _zone(each))), "UTC")


def _zone(given: Any) -> str | None:
    if isinstance(given, Past):
        return given.zone
    line = given.partitions if isinstance(given, Dataset) else None
    return line.zone if isinstance(line, Timeline) else None


def _input(what: str, given: Any, app: App) -> Ref | Source:
    if isinstance(given, Source):
        return given
    if inspect.isfunction(given):
        return Source(given)
    return _ref(what, given, app)


def _ref(what: str, given: Any, app: App) -> Ref:
    if isinstance(given, Dataset):
        other: Dataset[...] = given
        if other.app is not app:
            raise Refused(f"{what}: its input {other.name} belongs to another App")
        return Ref(other.name)
    if isinstance(given, Past):
        return Ref(given.dataset, given.count)
    if isinstance(given, str):
        return Ref(given)
    raise Refused(
        f"{what}: the input {given!r} is no dataset, no name of one, and no function of"
        " (spark, interval)"
    )


def _checks(what: str, given: Any) -> tuple[Any, ...]:
    several = cast("Sequence[Any]", given) if isinstance(given, list | tuple) else [given]
    checks = () if given is None else tuple(several)
    for check in checks:
        if not isinstance(check, Expect) and not callable(check):
            raise Refused(
                f'{what}: check={check!r}: write Expect("speed >= 0"), or a function of the frame'
                " that counts its bad rows"
            )
        if isinstance(check, Expect) and check.on_failure not in {"fail", "warn"}:
            raise Refused(f'{what}: on_failure={check.on_failure!r}: "fail" or "warn"')
    return checks


def _check_start(what: str, partitions: Any, start: Any) -> Interval | None:
    if start is None:
        return None
    if not isinstance(partitions, Timeline):
        raise Refused(f"{what}: start={start!r}, and its partitions are names")
    text = start.isoformat() if isinstance(start, date) else str(start)
    try:
        return partitions.parse(text)
    except Refused as error:
        raise Refused(f"{what}: start={start!r}: {error}") from None
