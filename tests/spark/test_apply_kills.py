"""apply, whose process is killed half-way and begun again by another, with two fleets at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from penstock.broker.views import Event
from penstock.brokers import open_broker
from penstock.rules.rule import Rule, RuleKind
from penstock.spark import row_id
from penstock.spark.fleet.driver import Fleet
from tests.spark.frames import jobs_in
from tests.stories.test_limits import most_in_a_window, tolerance_of

TASKS = Path(__file__).with_name("apply_tasks.py")
ROWS, RATE = 60, 20
SOON = 500.0
APPLY = """
import os, signal, sys, threading
import penstock.spark
from penstock.app.locate import load_app

target, into, rows, rate, calls = sys.argv[1:]
app = load_app(target)
spark = penstock.spark.session("local[1]", url=os.environ["PENSTOCK_URL"])

def die():
    while len(open(os.environ["LAB_CALLS"]).read().split()) < int(calls):
        threading.Event().wait(0.01)
    os.killpg(0, signal.SIGKILL)

if calls:
    threading.Thread(target=die, daemon=True).start()
frame = spark.createDataFrame([(n, "text") for n in range(int(rows))], "id int, text string")
task = app.tasks["lab:score"]
penstock.spark.apply(frame, task, id="id", name="june", rate=f"{rate}/s", into=into)
"""


def applied(into: Path, *, killed_after: int | None = None) -> subprocess.CompletedProcess[str]:
    words = (f"{TASKS}:app", into, ROWS, RATE, killed_after or "")
    return subprocess.run(
        [sys.executable, "-c", APPLY, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=SOON,
        check=False,
    )


@pytest.fixture
def calls(shared_spark: Any, store_url: str, tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """The ledger: a line for each call, whoever makes it."""
    path = tmp_path / "calls.txt"
    path.touch()
    monkeypatch.setenv("LAB_CALLS", str(path))
    monkeypatch.setenv("PENSTOCK_URL", store_url)
    environment = shared_spark.sparkContext.environment
    environment["LAB_CALLS"] = str(path)  # Spark's Java was started with another
    yield path
    del environment["LAB_CALLS"]


@pytest.fixture
def fleets(spark: Any, calls: Path) -> Iterator[list[Fleet]]:
    """Two of them, each with a slot."""
    fleets = [Fleet(spark, f"{TASKS}:app", 1, threads=4) for _ in range(2)]
    threads = [threading.Thread(target=fleet.run, daemon=True) for fleet in fleets]
    for thread in threads:
        thread.start()
    yield fleets
    for fleet in fleets:
        fleet.stop()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()


def attempts_in(url: str) -> list[Event]:
    broker = open_broker(url)
    found = [event for event in broker.history(limit=10_000) if event.kind == "attempt"]
    assert not [rule for rule in broker.records(Rule) if rule.kind is RuleKind.LIMIT]
    broker.close()
    return found


# REQUIREMENTS S14
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "store_url",
    ["postgres", pytest.param("sqlite", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
def test_killed_half_way_and_begun_again_by_another_process(
    fleets: list[Fleet], calls: Path, store_url: str, tmp_path: Path
):
    """Issue 5: every id once in the answer, none called twice, and never more than the rate."""
    killed = applied(tmp_path / "scored", killed_after=10)

    again = applied(tmp_path / "scored")

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert again.returncode == 0, again.stderr
    answer = pyarrow.parquet.read_table(tmp_path / "scored").to_pylist()
    assert sorted(row["id"] for row in answer) == list(range(ROWS))
    assert {row["error"] for row in answer} == {None}
    assert sorted(map(int, calls.read_text().split())) == list(range(ROWS))
    assert most_in_a_window(attempts_in(store_url), 1.0 - tolerance_of(store_url)) <= RATE
    assert {row_id("lab:score", n, name="june") for n in range(ROWS)} == {
        job.id for job in jobs_in(store_url)
    }
    assert all(sum(fleet.settled.values()) for fleet in fleets)
