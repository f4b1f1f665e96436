"""Through Spark Connect: the server is another process, and the client has no JVM."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.spark.java import java_home
from tests.spark.frames import jobs_in
from tests.stories.conftest import eventually

STEPS = Path(__file__).with_name("connect_steps.py")
TASKS = f"{Path(__file__).with_name('apply_tasks.py')}:app"
# Two Javas and a dozen Python processes, on a machine that may have two busy cores.
pytestmark = pytest.mark.timeout(600)
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def environment(folder: Path, url: str, **more: str) -> dict[str, str]:
    """The store is a profile, and nothing else says where it is."""
    folder.mkdir(exist_ok=True)
    settings = folder / "penstock.toml"
    settings.write_text(f'[profiles.lab]\nurl = "{url}"\n')
    home = java_home()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        **({} if home is None else {"JAVA_HOME": str(home)}),
        "LAB_CALLS": str(folder / "calls.txt"),
        "PENSTOCK_SETTINGS": str(settings),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


def work(address: str, folder: Path, url: str) -> dict[str, Any]:
    """What a client says that has done everything, with a worker beside it."""
    variables = environment(folder / "client", url)
    client = {**variables, "PENSTOCK_PROFILE": "lab"}
    worker = [sys.executable, "-m", "penstock", "worker", TASKS, "--processes", "1"]
    answers = folder / "answers.json"
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(worker, env=client, stdout=log, stderr=log)
    try:
        done = subprocess.run(
            [sys.executable, STEPS, address, folder, answers],
            env=client,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=580,
            check=False,
        )
    finally:
        process.terminate()
        process.wait()
    assert answers.exists(), done.stdout[-4000:]
    said = json.loads(answers.read_text())
    assert "failed" not in said, said["failed"][-3000:]
    return said


@contextmanager
def server(folder: Path, url: str) -> Iterator[str]:
    """A Connect server in a folder and a Python environment of its own; its address."""
    venv.create(folder / "python", with_pip=False, symlinks=True)
    python = folder / "python" / "bin" / "python"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    submit = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent), "bin/spark-submit")
    command = [submit, "--class", SERVER, "--master", "local[2]"]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
    }
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    log = folder / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            env=environment(folder, url, PYSPARK_PYTHON=str(python)),
            cwd=folder,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:

        def listens() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        eventually(listens, 200.0, "the Connect server listens")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


# A server in the client's own Java shows nothing that one in another environment does not.
IN_ITS_JAVA = pytest.param("local[2]", marks=[pytest.mark.soak, pytest.mark.every_store])


@pytest.fixture(scope="module", params=["elsewhere", IN_ITS_JAVA])
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """What a client did with a server of its own, and with one in another environment."""
    folder = tmp_path_factory.mktemp("connect")
    url = f"sqlite:///{folder}/jobs.db"
    if request.param == "local[2]":
        yield {**work("local[2]", folder, url), "store": url}
        return
    there = tmp_path_factory.mktemp("server")
    with server(there, url) as address:
        yield {**work(address, folder, url), "store": url}


elsewhere = pytest.mark.parametrize("said", ["elsewhere"], indirect=True)


def test_rows_become_jobs(said: dict[str, Any]):
    """S28: plain, with a key and with an id."""
    assert said["class"] == "pyspark.sql.connect.session"
    assert said["written"] == 60
    jobs = [job for job in jobs_in(said["store"]) if job.task == "mail:send"]
    assert len(jobs) == 60
    assert sum(job.key is not None for job in jobs) == 20


# REQUIREMENTS S26
@elsewhere
def test_apply_gives_each_row_its_result_once(said: dict[str, Any]):
    assert said["applied"] == [[1, 0.5, 1], [2, None, 1], [3, 1.5, 1]]
    assert said["errors"] == [2]
    assert sorted(said["called"]) == ["1", "2", "3"]
    assert said["tables"]["attempts"] == said["tables"]["results"] == 3


@elsewhere
def test_the_pipeline_runs_reports_and_replays(said: dict[str, Any]):
    run, report, replay = said["commands"]

    assert run[0] == 0
    assert run[1]["taken"]["attempts"] == said["in the lake"] == 3
    assert report[0] == 0
    assert report[1]["total"]["attempts"] == 3
    assert said["report"]
    assert replay[0] == 0
    assert (replay[1]["found"], replay[1]["enqueued"]) == (1, 1)
    assert said["replayed"] == 4


@elsewhere
def test_the_notebook_of_the_examples(said: dict[str, Any]):
    once = ["60 of 60 rows have an answer, of 120 tokens", "60 calls succeeded"]
    assert said["notebook"] == [*once, *once, "60 paid"]


def test_a_url_is_refused_in_one_sentence(said: dict[str, Any]):
    assert said["url"] == (
        "through Spark Connect a store is named by profile=, never by url=, which the server would"
        " log with the plan: put the URL into a penstock.toml on the server"
    )
    assert "a store is named by the option profile, never by url" in said["option"]


def test_what_needs_executors_says_so_in_one_sentence(said: dict[str, Any]):
    for what in ("fleet", "ship"):
        assert "cannot run through Spark Connect, which gives no access to executors" in said[what]
