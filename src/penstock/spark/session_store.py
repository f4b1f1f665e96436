"""Which store a session uses, and how its Python workers learn the URL.

The URL may hold a password, and Spark writes configuration, plans and options into logs and event
files. So it is passed as an environment variable of the Python workers, which Spark sends with the
code of a task and never shows. Keys are not sent at all: only the path of the key file is, and each
Python worker reads the file of its own machine.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.app.encrypted_broker import encrypted
from penstock.app.key_file import VARIABLE as KEY_FILE
from penstock.app.settings import (
    ResolvedUrl,
    calling_file,
    mask,
    resolve_app_name,
    resolve_url,
)
from penstock.brokers import open_broker
from penstock.errors import PenstockError, Refused
from penstock.spark.connect import connect_store, is_connect

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.app.key_ring import KeyRing
    from penstock.broker.protocol import Broker

_VARIABLE = "PENSTOCK_URL"
_NAME_VARIABLE = "PENSTOCK_APP_NAME"
_EXECUTOR_KEY_FILE = f"spark.executorEnv.{KEY_FILE}"
_GIVE_KEYS = (
    "Put the keys into a file on every machine and set PENSTOCK_KEY_FILE to its path before the "
    "session is made (or spark.executorEnv.PENSTOCK_KEY_FILE): keys are never sent through Spark, "
    "which would keep them. Nothing was stored without encryption"
)


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
    except PenstockError:
        raise  # names the store, without its password
    except Exception as error:
        raise Refused(f"{mask(url)} cannot be opened: {error}") from None
    try:
        yield broker
    finally:
        broker.close()


def sealed_store(broker: Broker, keys: KeyRing | None, key: str | None, app: str) -> Broker:
    """The store as a producer of this app writes to it: encrypted, or refused.

    `key` is the short hash that names the key of the app as the driver knows it.
    """
    if key is not None and (keys is None or key not in keys.names):
        raise Refused(
            f"the app encrypts its jobs with the key {key}, which this Python process of Spark does"
            f" not have. {_GIVE_KEYS}"
        )
    if keys is None and app in broker.traits.sealed_apps():
        raise Refused(
            f"the app {app!r} encrypts its jobs in this store, and this Python process of Spark has"
            f" no key. {_GIVE_KEYS}"
        )
    return encrypted(broker, keys)


def check_keys(spark: SparkSession, keys: KeyRing | None) -> None:
    """Refuse a session whose Python workers have no key file, although the app encrypts."""
    if keys is None or is_connect(spark):  # there the sink looks for them
        return
    if spark.sparkContext.environment.get(KEY_FILE):
        return
    if spark.sparkContext.getConf().get(_EXECUTOR_KEY_FILE) is None:
        raise Refused(
            f"the app encrypts its jobs, and Spark's Python processes have no key. {_GIVE_KEYS}"
        )


def set_store(spark: SparkSession, url: str, key_file: Path | None = None) -> None:
    """Pass the URL of the store, and the app's name, to every Python worker of this session.

    Of the key file only the path is passed, unless executors have one of their own.
    """
    environment = spark.sparkContext.environment
    environment[_VARIABLE] = url
    path = os.environ.get(KEY_FILE) or (None if key_file is None else str(key_file))
    if path is not None and spark.sparkContext.getConf().get(_EXECUTOR_KEY_FILE) is None:
        environment[KEY_FILE] = path
    else:
        environment.pop(KEY_FILE, None)
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


def store_of(spark: SparkSession) -> str:
    """The URL of the store that a session was attached to; it may hold a password."""
    if is_connect(spark):
        return connect_store(spark)
    url: str | None = spark.sparkContext.environment.get(_VARIABLE)
    return url or resolve_url(None).url
