"""The one Spark session of a test process, and another one after a test that ran out of time.

A timeout may strike in the middle of a call to Java. Its answer then is still to come, and would
be taken for that of the next call: nothing that this Java says can be trusted any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

_TIMEOUT = "Timeout"  # how the message of pytest-timeout begins


class SharedSession:
    """A session that is started by whoever wants it first, and lasts until it is interrupted.

    Its event log takes a sixth of the CPU time of all tests: it begins with the first test that
    reads it.
    """

    def __init__(
        self, start: Callable[[dict[str, Any]], Any], log_settings: dict[str, Any]
    ) -> None:
        self._start = start
        self._log_settings = log_settings
        self._logs = False
        self._made: Any = None

    def get(self, *, with_event_log: bool = False) -> Any:
        if with_event_log and not self._logs:
            self.stop()
            self._logs = True
        if self._made is None:
            self._made = self._start(self._log_settings if self._logs else {})
        return self._made

    def stop(self) -> None:
        if self._made is not None:
            self._made.stop()
            self._made = None

    def end(self) -> None:
        """Its Java with it, which otherwise ends some time after Python, and outlives the run."""
        self.stop()
        self.throw_away()

    def throw_away(self) -> None:
        """Kill its Java, and have PySpark forget it; nothing is asked of it."""
        self._made = None
        context: Any = SparkContext
        gateway = context._gateway
        if gateway is not None:
            gateway.proc.kill()
            gateway.proc.wait()
            gateway.proc.stdin.close()
            gateway.shutdown()
        context._gateway = context._jvm = context._active_spark_context = None
        session: Any = SparkSession
        session._instantiatedSession = session._activeSession = None


def ran_out_of_time(error: BaseException) -> bool:
    """Whether a timeout led to this, also where another error came on top of it."""
    return any(
        isinstance(each, pytest.fail.Exception) and str(each).startswith(_TIMEOUT)
        for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
