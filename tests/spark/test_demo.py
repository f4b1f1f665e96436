"""penstock demo --spark: told for real, at its smallest; and a proof that can fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.spark.pipelines.lake.lake import Lake
from penstock.tools.demo.spark.proof import FrameProof, prove
from penstock.tools.demo.spark.tasks import UNLUCKY, price
from tests.spark.pipelines.history import add_frame, an_attempt, attempts

PATIENCE = 900


def demo(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "demo", "--spark", *words],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def left_over(folder: Path) -> list[str]:
    """Processes that were started by a demo in this folder, and still run."""
    mark = f"TMPDIR={folder}".encode()
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.append((place / "cmdline").read_text(encoding="utf-8").replace("\0", " "))
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return found


@pytest.mark.timeout(PATIENCE + 20)
def test_the_demo_on_spark_shows_the_whole_pipeline_and_proves_it(tmp_path):
    telling = demo(tmp_path, "--jobs", "2000")
    said, errors = telling.communicate(timeout=PATIENCE)

    assert telling.returncode == 0, said + errors
    assert errors == ""
    assert "2,000 jobs are stored" in said
    assert "7 partitions, 7 succeeded" in said
    assert "2,000  with the right result" in said
    assert "Every row of the frame ended exactly once." in said
    [page] = re.findall(r"open (\S+) in a browser", said)
    assert f"delta_scan('{Path(page).parent}/lake/attempts')" in said
    assert "<html" in Path(page).read_text(encoding="utf-8")
    assert by_queue(Path(page).parent / "lake") == {"orders": 2000, "days": 7}
    assert left_over(tmp_path) == []


@pytest.mark.soak
def test_the_demo_on_spark_in_full_as_figures(tmp_path):
    telling = demo(tmp_path, "--json")
    said, errors = telling.communicate(timeout=3000)

    figures = json.loads(said)
    assert figures["holds"], said + errors
    assert figures["rows"] == figures["once"] == sum(figures["ended_by"].values()) == 1_000_000
    assert figures["retried"] == 1_000_000 // UNLUCKY
    assert len(figures["ended_by"]) == 3
    assert Path(figures["page"]).is_file()


@pytest.mark.timeout(PATIENCE + 20)
def test_ctrl_c_ends_everything_that_the_demo_on_spark_started(tmp_path):
    telling = demo(tmp_path, "--jobs", "2000")
    assert telling.stdout is not None
    for line in telling.stdout:
        if "penstock spark-worker" in line:
            break

    telling.send_signal(signal.SIGINT)
    said, errors = telling.communicate(timeout=PATIENCE)

    assert telling.returncode == 130, said + errors
    assert "stopped; nothing runs any more, and what was written so far is in" in errors
    assert "Traceback" not in errors
    assert left_over(tmp_path) == []


def test_a_java_that_does_not_start_is_one_sentence(tmp_path):
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'version "21"\' && exit\nexit 1\n')
    java.chmod(0o755)

    telling = demo(tmp_path, JAVA_HOME=str(java.parents[1]))
    said, errors = telling.communicate(timeout=100)

    assert telling.returncode == 2, said + errors
    [sentence] = errors.splitlines()
    assert sentence.startswith("Spark did not start: ")
    assert sentence.endswith("spark.log")


def by_queue(lake: Path) -> dict[str, int]:
    """How many jobs succeeded, as DuckDB reads the lake."""
    import duckdb  # here: what is imported before the tests began is never freed

    duck = duckdb.connect()
    duck.register("attempts", DeltaTable(str(lake / "attempts")).to_pyarrow_dataset())
    rows = duck.sql("select queue, count(*) from attempts where state = 'succeeded' group by 1")
    return dict(rows.fetchall())


def proof_of(spark: Any, folder: Path, orders: int, *rows: dict[str, Any]) -> FrameProof:
    """The proof over a frame of so many orders of one piece each, and this history of them."""
    frame = spark.range(1, orders + 1).selectExpr("cast(id as int) as order", "1 as pieces")
    history = [
        an_attempt(position, task=price.name, arguments=f'{{"order":{row.pop("order")}}}') | row
        for position, row in enumerate(rows, start=1)
    ]
    lake = Lake(folder / "lake")
    add_frame(attempts(spark, *history), lake, "attempts")
    return prove(spark, frame, lake, standing=0, cents_of_days=503)


def test_the_proof_holds_when_each_row_ended_once(shared_spark, tmp_path):
    proof = proof_of(
        shared_spark,
        tmp_path,
        2,
        {"order": 1, "state": "ready", "reason": "error"},
        {"order": 1, "result": "251", "attempt": 2},
        {"order": 2, "result": "252", "worker": "worker-2"},
        {"order": 3, "result": "0", "task": "somebody:else"},
    )

    assert proof.holds
    assert (proof.rows, proof.once, proof.retried, proof.cents) == (2, 2, 1, 503)
    assert proof.ended_by == {"worker-1": 1, "worker-2": 1}


def test_the_proof_counts_everything_that_can_go_wrong(shared_spark, tmp_path):
    proof = proof_of(
        shared_spark,
        tmp_path,
        6,
        {"order": 1, "result": "251"},
        {"order": 2, "state": "ready"},  # and 3 has no row at all
        {"order": 4, "result": "127"},
        {"order": 4, "result": "127"},
        {"order": 5, "result": "256"},
        {"order": 6, "state": "failed"},
        {"order": 7, "result": "257"},
    )

    assert not proof.holds
    assert (proof.rows, proof.once) == (6, 1)
    assert (proof.lost, proof.twice, proof.wrong, proof.strange) == (2, 1, 2, 1)


@pytest.mark.parametrize(
    "fault", ["lost", "twice", "strange", "wrong", "standing", "cents", "cents_of_days", "once"]
)
def test_the_proof_fails_for_each_of_them(fault):
    numbers = dict.fromkeys(("lost", "twice", "strange", "wrong", "standing", "retried"), 0)
    figures = {"rows": 2, "once": 2, "cents": 503, "cents_of_days": 503, "ended_by": {}} | numbers
    assert FrameProof(**figures).holds

    assert not FrameProof(**figures | {fault: figures[fault] + 1}).holds
