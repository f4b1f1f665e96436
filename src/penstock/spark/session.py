"""A Spark session that knows Penstock: the one place for every pitfall between the two.

`session()` makes one, on this machine unless told otherwise; `attach(spark)` teaches one that
somebody else made. What only counts before Java starts is therefore in `session` alone.
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
from penstock.spark.java import java_home
from penstock.spark.session_store import named_store, refuse_connect, tell
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

    The store is named by `profile` or `url`, else found as an `App()` finds it. `config` goes
    before what is set here. Asked again it gives the session that runs; another master is refused.
    Without an `app_name` it is "penstock", or named after the detached job that it is made for.
    """
    _need_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    store = named_store(profile, url)
    builder: Any = SparkSession.builder
    # Not getActiveSession: to any other thread than the one that made it, it is unknown.
    running = SparkContext._active_spark_context  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know
    if running is not None:
        at = running.master
        if master is not None and master != at:
            raise Refused(f"a session on {at} runs in this process; stop it before one on {master}")
        return _attached(builder.getOrCreate(), store)
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = "local[*]"  # else spark-submit has started Java, and was told which
    began = time.monotonic()
    _quieten()
    if master is not None:
        _say(f"starting Spark on {master}, which takes some seconds")
        _prepare_environment(master)
        builder = builder.master(master).appName(app_name or NAME.get() or "penstock")
    for name, value in _configuration(master, config or {}).items():
        builder = builder.config(name, value)
    with uninterrupted():
        spark: SparkSession = builder.getOrCreate()
    _say(f"Spark {spark.version} runs after {time.monotonic() - began:.1f} s")
    return _attached(spark, store)


def attach(
    spark: SparkSession, *, profile: str | None = None, url: str | None = None
) -> SparkSession:
    """Make a session that runs already ready to use Penstock, and return it."""
    _need_spark()
    return _attached(spark, named_store(profile, url))


def _attached(spark: SparkSession, store: ResolvedUrl) -> SparkSession:
    refuse_connect(spark)
    from penstock.spark.source.data_source import PenstockSource

    here = on_this_machine(spark.sparkContext.master)
    # A store that nobody named is a file beside this project: no other machine has it.
    known = store.url if here or not store.source.startswith("the default") else None
    if known is not None:
        tell(spark, known)
    make_ready(spark, known)
    spark.dataSource.register(PenstockSource)
    make_active(spark)
    return spark


def make_active(spark: SparkSession) -> None:
    """Make this the session of the calling thread.

    Only the thread that made a session has it so, and a write by name from any other finds no
    source of Python's.
    """
    made: Any = getattr(spark, "_jsparkSession", None)
    if made is not None:  # else it stands in for one, in a test
        made.setActiveSession(made)


@contextmanager
def uninterrupted() -> Generator[None]:
    """Ctrl-C waits for the end of this; a second one does not.

    A Java that is given up while it starts finds nobody to tell that it runs, and never ends.
    """
    pressed: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        del frame
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)
        _say("stopping as soon as Spark has started")

    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is wait:  # else it is Spark's by now
            signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _quieten() -> None:
    """Leave out what py4j tells of every line that it closes, and what PySpark writes of an error.

    That is raised as well: a line of JSON with the stack of both languages adds nothing.
    """
    from pyspark.logger import PySparkLogger

    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _need_spark() -> None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise Refused("Spark is not installed: pip install 'penstock-queue[spark]'")
    import pyspark

    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdigit())
    if found < OLDEST:
        raise Refused(
            f"pyspark {pyspark.__version__} is too old, its data sources begin with"
            f" {'.'.join(map(str, OLDEST))}: pip install 'penstock-queue[spark]'"
        )


def _prepare_environment(master: str) -> None:
    """What Spark reads before it has a configuration."""
    from pyspark import SparkContext

    if SparkContext._gateway is None and (home := java_home()) is not None:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  Java runs already, or not
        os.environ["JAVA_HOME"] = str(home)
    # Without it workers run whatever is called python3.
    if on_this_machine(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _on_loopback(master):
        # Else it binds to the address that the host's name leads to, which may be anything.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)


def _configuration(master: str | None, given: Mapping[str, object]) -> dict[str, str]:
    config = {
        # The option that a reader may name its store by, and what people put in beside ours.
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


def _say(text: str) -> None:
    sys.stderr.write(f"penstock: {text}\n")
    sys.stderr.flush()
