"""Spark Connect: a session whose server runs the code, on machines that this process cannot see.

Nothing can be put into the environment of the server's Python workers, and whatever an option or a
setting says is in the plan, which the server logs. So the store is named by a profile of the
server, and Penstock is installed there. No sparkContext, RDD or JVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from penstock.app.version import DISTRIBUTION, RELEASE
from penstock.broker.slice import Selection
from penstock.brokers import open_broker
from penstock.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.app.settings import ResolvedUrl


class _Attached(NamedTuple):
    profile: str | None
    store: ResolvedUrl | None = None  # as this process knows it; None: of the same profile


_attached: WeakKeyDictionary[Any, _Attached] = WeakKeyDictionary()


def names_connect(master: str | None) -> bool:
    """Whether a session on this master, or with None on the default one, is of Spark Connect."""
    from pyspark.sql import is_remote

    if master is not None:
        return master.startswith("sc://")
    return is_remote() or "SPARK_REMOTE" in os.environ


def is_connect(spark: object) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def on_server() -> bool:
    """Whether this is a Python process of a Connect server: only there sessions have artifacts."""
    return os.environ.get("SPARK_JOB_ARTIFACT_UUID", "default") != "default"


def attach_connect(spark: Any, profile: str | None, url: str | None) -> None:
    """Register the source with this profile for its store; refused if the server cannot use it."""
    if url is not None:
        raise Refused(
            "through Spark Connect a store is named by profile=, never by url=, which the server"
            " would log with the plan: put the URL into a penstock.toml on the server"
        )
    _check_server(spark)
    from penstock.spark.source.data_source import PenstockSource, register

    # Nested, so that it is pickled by value, with the name of the profile.
    class Source(PenstockSource):
        def __init__(self, options: Any) -> None:
            named = {"app", "profile", "url"} & {name.lower() for name in options}
            super().__init__({**options, **({} if named else {"profile": profile or ""})})

    if not register(spark, PenstockSource if profile is None else Source) and profile is not None:
        raise Refused(
            f"Spark {spark.version} cannot keep profile={profile!r} with a Connect session: leave"
            " it out, and set PENSTOCK_PROFILE in the environment of the server"
        )
    _attached[spark] = _Attached(profile)


def set_store_here(spark: Any, store: ResolvedUrl) -> None:
    """What this process calls the store of an attached session."""
    _attached[spark] = _attached[spark]._replace(store=store)


def profile_of(spark: Any) -> str | None:
    """The profile that the server's Python processes need; None: their environment says it."""
    return _attached[spark].profile if spark in _attached else None


def connect_store(spark: Any) -> str:
    """The URL of the store as this process knows it; refused if the server has another one."""
    if spark not in _attached:
        raise Refused("this Spark Connect session is not attached: penstock.spark.attach(spark)")
    from penstock.spark.session_store import named_store

    profile, store = _attached[spark]
    store = store or named_store(profile)
    broker = open_broker(store.url, create=True)
    try:
        here = broker.reach(Selection(table="attempts"), at_most=1, patience=0).store
    finally:
        broker.close()

    def store_there(_: Iterator[Any]) -> Iterator[str]:
        from penstock.spark.session_store import named_store, opened_store
        from penstock.spark.source.shards import store_id

        with opened_store(named_store(profile).url) as broker:
            yield store_id(broker)

    [there] = run_on_server(spark, store_there, 1)
    if there != here:
        raise Refused(
            f"the store of this process is {here} ({store.source}), and that of the Connect server"
            f" is {there}: name the same one in both places"
        )
    return store.url


def run_on_server(spark: Any, function: Any, parts: int) -> list[Any]:
    """What this function yields for each part, a list with its number; on any kind of session."""

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        from importlib import import_module

        arrow: Any = import_module("pyarrow")
        for batch in batches:
            answers = arrow.array(function(batch.column(0).to_pylist()), arrow.string())
            yield arrow.RecordBatch.from_arrays([answers], ["answer"])

    frame = spark.range(0, parts, 1, max(1, parts)).mapInArrow(call, "answer string")
    return [row[0] for row in frame.collect()]


def cores(spark: Any) -> int:
    """How many Spark tasks run at a time."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql.functions import spark_partition_id

    return spark.range(1000).select(spark_partition_id()).distinct().count()


def _check_server(spark: Any) -> None:
    # Nested and without our modules: the server may not have them.
    def version_there(_: Any) -> Iterator[str]:
        from importlib.metadata import PackageNotFoundError, version

        try:
            yield version(DISTRIBUTION)
        except PackageNotFoundError:
            yield ""

    [there] = run_on_server(spark, version_there, 1)
    if there != RELEASE:
        has = f"has {there}" if there else "has none"
        raise Refused(
            f"this process runs Penstock {RELEASE}, and the Connect server {has}: install"
            f" {DISTRIBUTION}=={RELEASE} in the Python of the server"
        )


def refuse_connect(spark: SparkSession, what: str) -> None:
    if is_connect(spark):
        raise Refused(
            f"{what} cannot run through Spark Connect, which gives no access to executors: start it"
            " with a session of its own, on the cluster's master"
        )
