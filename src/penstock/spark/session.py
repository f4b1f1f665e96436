"""Spark sessions with Penstock: environment, configuration, code on executors, the data source.

`session()` makes one, on this machine by default; `attach(spark)` sets up one that exists. Settings
that only have an effect before the JVM starts are in `session` alone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.app.settings import ResolvedUrl
from penstock.errors import Refused
from penstock.spark.application import NAME
from penstock.spark.connect import attach_connect, is_connect, names_connect
from penstock.spark.java import java_home
from penstock.spark.master_url import check_master
from penstock.spark.one_sentence import one_sentence, print_sentences
from penstock.spark.session_store import named_store, set_store
from penstock.spark.ship_code import make_ready, on_this_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = (4, 0)
_LOOPBACK = "127.0.0.1"
_QUIET = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    master: str | None = None,
    *,
    app_name: str | None = None,
    profile: str | None = None,
    url: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """A session on this machine, or on the cluster that `master` names, ready to use Penstock.

    `master` may be a Spark Connect server, "sc://host:15002", as may SPARK_REMOTE.

    The store is named by `profile` or `url`, else found as an `App()` finds it. `config` overrides
    what is set here. A session that runs already is returned; another master is refused. The
    default `app_name` is "penstock", or that of the detached job that the session is made for.
    """
    _need_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    if master is not None:
        check_master(master)
    if names_connect(master):
        builder = builder if master is None else builder.remote(master)
        running: Any = SparkSession.getActiveSession() if master is None else None
        spark = running or builder.config(map=dict(config or {})).getOrCreate()
        return attach(spark, profile=profile, url=url)
    store = named_store(profile, url)
    # Not getActiveSession, which only knows the session of the calling thread.
    running = SparkContext._active_spark_context  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  no public way
    if running is not None:
        if master is not None and master != running.master:
            raise Refused(
                f"a session on {running.master} runs in this process: stop it before you start one"
                f" on {master}"
            )
        return _attached(builder.getOrCreate(), store)
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = "local[*]"  # else spark-submit has started the JVM with its own --master
    began = time.monotonic()
    _silence_loggers()
    if master is not None:
        say(f"starting Spark on {master}, which takes some seconds")
        _prepare_environment(master)
        builder = builder.master(master).appName(app_name or NAME.get() or "penstock")
    for name, value in _configuration(master, config or {}).items():
        builder = builder.config(name, value)
    with uninterrupted():
        spark = builder.getOrCreate()
    say(f"Spark {spark.version} started in {time.monotonic() - began:.1f} s")
    return _attached(spark, store)


def attach(
    spark: SparkSession, *, profile: str | None = None, url: str | None = None
) -> SparkSession:
    """Set up a session that runs already for Penstock, and return it."""
    _need_spark()
    if is_connect(spark):
        attach_connect(spark, profile, url)
        return spark
    return _attached(spark, named_store(profile, url))


def _attached(spark: SparkSession, store: ResolvedUrl) -> SparkSession:
    from penstock.spark.source.data_source import PenstockSource, register

    local = on_this_machine(spark.sparkContext.master)
    # The default store is a file beside this project: no other machine has it.
    known = store.url if local or not store.source.startswith("the default") else None
    if known is not None:
        set_store(spark, known, store.key_file)
    with one_sentence():
        make_ready(spark, known)
    register(spark, PenstockSource)
    make_active(spark)
    print_sentences()
    return spark


def make_active(spark: SparkSession) -> None:
    """Make this the active session of the calling thread, so that it finds Python data sources."""
    java_session: Any = getattr(spark, "_jsparkSession", None)
    if java_session is not None:  # None: a test's substitute
        java_session.setActiveSession(java_session)


@contextmanager
def uninterrupted() -> Generator[None]:
    """Delay the first Ctrl-C until the end of this block; a second one interrupts at once.

    A JVM that is abandoned while it starts would never end.
    """
    pressed: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        del frame
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        say("stopping as soon as Spark has started")

    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is wait:  # else Spark has set its own
            signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _silence_loggers() -> None:
    """Silence py4j on closed connections, and PySpark's log of errors that it raises as well."""
    from pyspark.logger import PySparkLogger

    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise Refused("Spark is not installed: pip install 'penstock-queue[spark]'")
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdigit())
    if version < OLDEST:
        raise Refused(
            f"pyspark {pyspark.__version__} is too old, Python data sources need"
            f" {'.'.join(map(str, OLDEST))} or newer: pip install 'penstock-queue[spark]'"
        )


def _prepare_environment(master: str) -> None:
    """Set the variables that Spark reads before it has a configuration."""
    from pyspark import SparkContext

    if SparkContext._gateway is None and (home := java_home()) is not None:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  whether the JVM runs
        os.environ["JAVA_HOME"] = str(home)
    # Without it Python workers run whatever is called python3.
    if on_this_machine(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _on_loopback(master):
        # Else Spark binds to the address that the host's name resolves to, which may be anything.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def _configuration(master: str | None, given: Mapping[str, object]) -> dict[str, str]:
    config = {
        # Spark's default, and the variable that holds the store's URL.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|penstock_url",
        "spark.ui.showConsoleProgress": "false",
    }
    if master is not None and _on_loopback(master):
        config |= {
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.host": _LOOPBACK,
            "spark.ui.enabled": "false",
        }
    config |= {name: _text(value) for name, value in given.items()}
    if master is None:
        return config
    quiet = f"-Dlog4j2.configurationFile={_QUIET.as_uri()}"
    config[_JAVA_OPTIONS] = f"{quiet} {config.get(_JAVA_OPTIONS, '')}".strip()
    return config


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _on_loopback(master: str) -> bool:
    if on_this_machine(master) or master.startswith("local-cluster["):
        return True
    return urlsplit(master).hostname in {"localhost", "::1", _LOOPBACK}


def say(text: str) -> None:
    sys.stderr.write(f"penstock: {text}\n")
    sys.stderr.flush()
