"""The examples with Spark run as their pages say."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.spark.java import java_home

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
HERE = "local[2]"


def environment(url: str) -> dict[str, str]:
    home = java_home()
    return {
        **os.environ,
        **({} if home is None else {"JAVA_HOME": str(home)}),
        "PENSTOCK_URL": url,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.mark.parametrize("on", [HERE, pytest.param("cluster", marks=pytest.mark.soak)])
def test_a_program_for_spark_submit(on: str, sqlite_url: str, request: pytest.FixtureRequest):
    """Issue 5: submitted twice, each row is one job."""
    master = HERE if on == HERE else request.getfixturevalue("cluster").url
    command = [SUBMIT, "--master", master, "--conf", "spark.executor.memory=512m"]

    for _ in range(1 if on == HERE else 2):
        done = subprocess.run(
            [*command, EXAMPLES / "submit.py", "reminders-1"],
            env=environment(sqlite_url),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

        lines = done.stdout.splitlines()  # with what was said on the other stream: so Spark has it
        assert f"100 reminders are ready, written on {master}" in lines, done.stderr


def test_a_notebook_cell_by_cell(
    shared_spark: Any,
    sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("PENSTOCK_URL", sqlite_url)
    monkeypatch.syspath_prepend(EXAMPLES)
    worker = [sys.executable, "-m", "penstock", "worker", EXAMPLES / "reminders.py"]

    with subprocess.Popen([*worker, "--processes", "1"], env=environment(sqlite_url)) as process:
        try:
            runpy.run_path(str(EXAMPLES / "notebook.py"))
        finally:
            process.terminate()
            sys.modules.pop("reminders").app.close()

    assert capsys.readouterr().out.splitlines() == [
        "customer 1: pay",
        "customer 2: come back",
        "2 succeeded",
    ]


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_an_etl_of_days_comes_to_the_right_totals_whatever_is_killed(kills: int, tmp_path: Path):
    """Issue 6: the job's process, the worker and the keeper, at random moments."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / "etl_days.py", str(kills)],
        env=environment("sqlite:///nowhere.db"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    killed, begun, *right = done.stdout.splitlines()
    if kills == 2:
        assert killed == "killed: process, worker"
    steps = begun.removeprefix("begun: ").split(", ")
    assert list(dict.fromkeys(steps)) == ["read", "clean", "join", "aggregate", "publish"]
    # Never back behind a step that was remembered.
    assert steps == sorted(steps, key=list(dict.fromkeys(steps)).index)
    assert right == ["totals are right: True", "published are the same: True"]


def test_every_example_is_run_by_a_test():
    names = {path.stem for path in EXAMPLES.glob("*.py")}

    assert names == {"etl_days", "notebook", "reminders", "submit"}
