"""Which store Spark's processes mean, and how they hear of it.

The URL may hold a password, and Spark writes configuration, plans and options into logs and event
files. So it travels in none of them: it is an environment variable of the Python workers, which
Spark hands on with the code of a task and never shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.app.settings import ResolvedUrl, calling_file, resolve_app_name, resolve_url
from penstock.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VARIABLE = "PENSTOCK_URL"
_NAME_VARIABLE = "PENSTOCK_APP_NAME"


def named_store(profile: str | None = None, url: str | None = None) -> ResolvedUrl:
    """The store that a profile or a URL names; with neither, the one that an App() would use."""
    if profile is not None and url is not None:
        raise Refused("profile and url both say where the store is: give one of them")
    return resolve_url(url, calling_file(), profile)


def tell(spark: SparkSession, url: str) -> None:
    """Have every Python worker of this session find the store by itself, and the app's name."""
    spark.sparkContext.environment[_VARIABLE] = url
    tell_name(spark, named_app())


def named_app() -> str:
    """The name that an App() would have which gives itself none."""
    return resolve_app_name(calling_file())[0]


def tell_name(spark: SparkSession, name: str) -> None:
    """Have every Python worker of this session know which program it is; "": as it finds itself."""
    if name:
        spark.sparkContext.environment[_NAME_VARIABLE] = name
    else:
        spark.sparkContext.environment.pop(_NAME_VARIABLE, None)


def refuse_connect(spark: SparkSession) -> None:
    """Refuse a session of Spark Connect, which has no part in this process to be told anything."""
    if not hasattr(spark, "_jsparkSession"):
        raise Refused(
            "this session is Spark Connect's, whose server runs the code: install Penstock there,"
            ' set PENSTOCK_URL for it, and format("penstock") is known by itself'
        )


def store_of(spark: SparkSession) -> str:
    """The URL of the store that a session was attached to; with a password in it, perhaps."""
    refuse_connect(spark)
    told: str | None = spark.sparkContext.environment.get(_VARIABLE)
    return told or resolve_url(None).url
