"""Which store a session uses, and how its Python workers learn the URL.

The URL may hold a password, and Spark writes configuration, plans and options into logs and event
files. So it is passed as an environment variable of the Python workers, which Spark sends with the
code of a task and never shows.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.app.settings import (
    ResolvedUrl,
    calling_file,
    mask,
    resolve_app_name,
    resolve_url,
)
from penstock.brokers import open_broker
from penstock.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.broker.protocol import Broker

_VARIABLE = "PENSTOCK_URL"
_NAME_VARIABLE = "PENSTOCK_APP_NAME"


def named_store(profile: str | None = None, url: str | None = None) -> ResolvedUrl:
    """The store of a profile or a URL; with neither, the one that an App() would use."""
    if profile is not None and url is not None:
        raise Refused("profile and url both say where the store is: give one of them")
    return resolve_url(url, calling_file(), profile)


@contextmanager
def opened_store(url: str, *, create: bool = False) -> Generator[Broker]:
    """The store at this URL; an error that it cannot be opened shows no password."""
    try:
        broker = open_broker(url, create=create)
    except Exception as error:
        raise Refused(f"{mask(url)} cannot be opened: {error}") from None
    try:
        yield broker
    finally:
        broker.close()


def set_store(spark: SparkSession, url: str) -> None:
    """Pass the store's URL, and the app's name, to every Python worker of this session."""
    spark.sparkContext.environment[_VARIABLE] = url
    set_app_name(spark, named_app())


def named_app() -> str:
    """The name that an App() without a name of its own would have."""
    return resolve_app_name(calling_file())[0]


def set_app_name(spark: SparkSession, name: str) -> None:
    """Pass the app's name to every Python worker of this session; "": they find it themselves."""
    if name:
        spark.sparkContext.environment[_NAME_VARIABLE] = name
    else:
        spark.sparkContext.environment.pop(_NAME_VARIABLE, None)


def refuse_connect(spark: SparkSession) -> None:
    """Refuse a Spark Connect session, whose Python workers are out of this process's reach."""
    if not hasattr(spark, "_jsparkSession"):
        raise Refused(
            "this is a Spark Connect session, whose server runs the code: install Penstock there,"
            ' set PENSTOCK_URL in its environment, and format("penstock") works without attach'
        )


def store_of(spark: SparkSession) -> str:
    """The URL of the store that a session was attached to; it may hold a password."""
    refuse_connect(spark)
    url: str | None = spark.sparkContext.environment.get(_VARIABLE)
    return url or resolve_url(None).url
