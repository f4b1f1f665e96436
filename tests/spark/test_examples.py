"""The examples with Spark run as their pages say."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.spark.java import java_home
from tests.stories.conftest import eventually

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


def test_a_notebook_killed_at_night_pays_for_no_row_twice(
    shared_spark: Any,
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Issue 17: the model is busy at times, its budget ends, and next morning it goes on."""
    del shared_spark
    with endpoint(budget=20) as url:
        monkeypatch.setenv("MODEL_URL", url)
        monkeypatch.setenv("PENSTOCK_URL", sqlite_url)
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.chdir(tmp_path)
        run = {"env": environment(sqlite_url), "cwd": tmp_path, "start_new_session": True}
        worker = [sys.executable, "-m", "penstock", "worker", EXAMPLES / "model.py"]
        with subprocess.Popen([*worker, "--processes", "1"], **run) as process:
            try:
                evening = subprocess.Popen([sys.executable, EXAMPLES / "notebook.py"], **run)
                try:
                    eventually(lambda: len(paid(url)) == 20, 280.0, "the budget is used up")
                finally:
                    os.killpg(evening.pid, signal.SIGKILL)
                    evening.wait()
                urllib.request.urlopen(f"{url}/budget", data=b"").close()
                eventually(lambda: len(paid(url)) == 60, 280.0, "the jobs went on meanwhile")
                morning = [runpy.run_path(str(EXAMPLES / "notebook.py")) for _ in range(2)]
            finally:
                process.terminate()
                sys.modules.pop("model").app.close()

        assert paid(url) == {f"review {n}": 1 for n in range(60)}
    said = capsys.readouterr().out.splitlines()
    assert said == 2 * [
        "60 of 60 rows have an answer, of 120 tokens",
        "60 calls succeeded",
    ]
    texts = {row.id: row.result.text for row in morning[1]["answers"].collect()}
    assert texts == {n: f"{n} review" for n in range(60)}
    assert "<rect" in (tmp_path / "calls.html").read_text()


@contextmanager
def endpoint(budget: int) -> Iterator[str]:
    """The model of the notebook, at the URL that comes back."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, EXAMPLES / "endpoint.py", str(port), str(budget)]
    with subprocess.Popen(command) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            eventually(lambda: answers(url), 100.0, "the endpoint answers")
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    try:
        return paid(url) == {}
    except OSError:
        return False


def paid(url: str) -> dict[str, int]:
    """How often each prompt was paid for."""
    with urllib.request.urlopen(f"{url}/paid", timeout=10) as said:
        return json.load(said)


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

    # congestion: tests/spark/test_congestion.py
    assert names == {
        "congestion",
        "endpoint",
        "etl_days",
        "model",
        "notebook",
        "reminders",
        "submit",
    }
