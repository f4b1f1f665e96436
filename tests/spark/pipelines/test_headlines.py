"""Spark finds the same headline in a stored error as everybody else."""

from __future__ import annotations

import traceback

import pytest

from penstock import App
from penstock.brokers.memory import MemoryBroker
from penstock.run.attempt import run
from penstock.run.error_text import headline
from penstock.spark.pipelines.clean_attempts import headline as headline_column
from tests.real_errors import REAL_ERRORS


@pytest.fixture
def errors(memory_broker: MemoryBroker) -> list[str]:
    """Errors as this release stores them, as older ones did, and such as nobody wrote."""
    app, found = (
        App(broker=memory_broker),
        ["", " \n", "...", "Gone\r\n \t\x0b\f\n", "Traceback\nE: 1\n"],
    )
    for number, real in enumerate(REAL_ERRORS):
        task = app.task(name=f"task-{number}")(_calling(real.call))
        outcome = run(app, task, task.job())
        assert outcome is not None
        assert outcome.error is not None
        assert headline(outcome.error, 500) == real.headline
        found.append(outcome.error)
        try:
            real.call()
        except BaseException:
            found.append(traceback.format_exc().encode("utf-8", "replace").decode())
    return found


def _calling(call):
    def task() -> None:
        call()

    return task


def test_spark_has_the_headline_that_python_has(shared_spark, errors):
    frame = shared_spark.createDataFrame(list(enumerate(errors)), "n int, error string")

    rows = frame.select("n", headline_column().alias("said")).orderBy("n").collect()

    assert [row["said"] for row in rows] == [headline(error, 200_000) for error in errors]
