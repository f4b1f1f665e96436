"""What runs beside the demo on Spark: the session, its fleet, and a worker, in threads.

All of it is ended on every way out, Ctrl-C among them. Java's words go to a file: it keeps the
stderr that it was started with, so that only its start needs to be led there.
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
    """A session on this machine, stopped at the end; what it has to say is in `spark.log`."""
    cores = max(SLOTS, os.cpu_count() or 1)
    log = folder / "spark.log"
    try:
        with _stderr_into(log):
            spark = penstock.spark.session(
                f"local[{cores}]",
                app_name="penstock demo",
                url=url,
                config={
                    # A Java that lives for a minute or two spends less on compiling its code.
                    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                    "spark.sql.session.timeZone": "UTC",
                    "spark.sql.shuffle.partitions": cores,
                    "spark.sql.warehouse.dir": str(folder / "warehouse"),
                },
            )
    except PenstockError:
        raise
    except Exception as error:
        said = str(error).strip().splitlines()
        why = said[0] if said else type(error).__name__
        raise PenstockError(f"Spark did not start: {why} Its words are in {log}") from error
    # Spark's own answer is to cancel its jobs, and the slots with them; SIGTERM has none at all.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _leave),
    }
    try:
        yield spark
    finally:
        # A call that was cut short is told of by the library that made it, with its traceback.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        with suppress(Exception):  # its Java may be gone, which can be why we are here
            spark.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


class InThread(threading.Thread):
    """A fleet or a worker that runs jobs in a thread of its own until it is stopped."""

    def __init__(self, company: Fleet | Worker) -> None:
        super().__init__(name="penstock-demo", daemon=True)
        self._company = company
        self._error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            if isinstance(self._company, Fleet):
                self._company.run()
            else:
                self._company.work()
        except Exception as error:
            self._error = error

    def check(self, what: str) -> None:
        """Refuse to wait on for `what` if it has ended."""
        if not self.is_alive():
            name = type(self._company).__name__.lower()
            why = "" if self._error is None else f": {self._error}"
            raise PenstockError(f"the {name} ended while the demo waited for {what}{why}")

    def stop(self, *, now: bool) -> None:
        """Have it end, `now` or when what it runs has ended, and wait for that."""
        self._company.stop(now=now)
        self.join(_LEAVE_SECONDS)


@contextmanager
def _stderr_into(path: Path) -> Generator[None]:
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


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(128 + number)
