"""The Spark session of the demo, and the threads that run a fleet or a worker.

All of it is ended however the demo ends, also by Ctrl-C. Java keeps the stderr that it was started
with, so redirecting stderr while it starts sends all its output to a file.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import penstock.spark
from penstock.errors import PenstockError
from penstock.spark.fleet.driver import Fleet
from penstock.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
_LEAVE_SECONDS = 60.0


@contextmanager
def running_session(url: str, folder: Path) -> Generator[SparkSession]:
    """A session on this machine, stopped at the end; it logs to `spark.log`."""
    cores = max(SLOTS, os.cpu_count() or 1)
    log = folder / "spark.log"
    try:
        with _stderr_to(log):
            spark = penstock.spark.session(
                f"local[{cores}]",
                app_name="penstock demo",
                url=url,
                config={
                    # For a short life: only the quick compiler of Java.
                    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                    "spark.sql.session.timeZone": "UTC",
                    "spark.sql.shuffle.partitions": cores,
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                },
            )
    except PenstockError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        why = lines[0] if lines else type(error).__name__
        raise PenstockError(f"Spark did not start: {why} See its log, {log}") from error
    # PySpark's handler of Ctrl-C would cancel the jobs of the fleet; SIGTERM has none.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _exit),
    }
    try:
        yield spark
    finally:
        # py4j logs the traceback of a call that was interrupted.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        with suppress(Exception):  # Java may have ended already
            spark.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


class DemoThread(threading.Thread):
    """A fleet or a worker in a thread of its own."""

    def __init__(self, runner: Fleet | Worker) -> None:
        super().__init__(name="penstock-demo", daemon=True)
        self._runner = runner
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            if isinstance(self._runner, Fleet):
                self._runner.run()
            else:
                self._runner.work()
        except Exception as error:
            self._error = error

    def check(self, what: str) -> None:
        """Raise if it has ended while the demo waits for `what`."""
        if not self.is_alive():
            name = type(self._runner).__name__.lower()
            why = "" if self._error is None else f": {self._error}"
            raise PenstockError(f"the {name} ended while the demo waited for {what}{why}")

    def stop(self, *, now: bool) -> None:
        """End it, `now` or when its jobs have ended, and wait for that."""
        self._runner.stop(now=now)
        self.join(_LEAVE_SECONDS)


@contextmanager
def _stderr_to(path: Path) -> Generator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)
