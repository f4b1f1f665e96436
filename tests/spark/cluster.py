"""A standalone cluster from what pip installed: a master and workers, on loopback.

It is started as an operator would start it, without Penstock on its path: whatever executors need
of it has to come from the driver.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from penstock.spark.java import java_home
from tests.leftovers import MARK
from tests.stories.conftest import eventually

_DEPLOY = "org.apache.spark.deploy"
_LOOPBACK = "127.0.0.1"
_START_SECONDS = 90
_INHERITED = ("HOME", "PATH", "LANG", MARK)


class Cluster:
    """`workers` workers with so many cores each; `url` is what --master takes."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1) -> None:
        self.folder = folder
        self._workers = workers
        self._cores = cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port, self.page = _free_port(), _free_port()
        self.url = f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            place = ["--host", _LOOPBACK, "--port", str(self._port)]
            self._start("master.Master", _LOOPBACK, *place, "--webui-port", str(self.page))
            eventually(self.state, _START_SECONDS, "the master answers")
            for number in range(self._workers):
                folder = self.folder / f"worker-{number}"
                memory = ["--cores", str(self._cores), "--memory", "1g"]
                # A host each: a task is run a second time, to be sure, on another host only.
                host = f"127.0.0.{number + 1}"
                where = ["--host", host, "--webui-port", "0", "--work-dir", str(folder)]
                self._start("worker.Worker", host, *where, *memory, self.url)
            eventually(
                lambda: len((self.state() or {}).get("workers", ())) == self._workers,
                _START_SECONDS,
                "the workers are there",
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> dict[str, Any] | None:
        """What the master says of itself."""
        with suppress(OSError, ValueError):
            page = f"http://127.0.0.1:{self.page}/json/"
            with urllib.request.urlopen(page, timeout=5) as answer:
                return json.load(answer)
        return None

    def executors(self) -> list[int]:
        """The processes of executors that run now."""
        found: list[int] = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                here = (place / "cwd").readlink().is_relative_to(self.folder)
                if here and b"--executor-id" in (place / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(place.name))
        return found

    def close(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self, kind: str, host: str, *words: str) -> None:
        environment = {
            **{name: os.environ[name] for name in _INHERITED if name in os.environ},
            "SPARK_HOME": os.environ["SPARK_HOME"],
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": os.environ["SPARK_DAEMON_JAVA_OPTS"],
        }
        if (home := java_home()) is not None:
            environment["JAVA_HOME"] = str(home)
        with (self.folder / f"{kind}-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [f"{os.environ['SPARK_HOME']}/bin/spark-class", f"{_DEPLOY}.{kind}", *words],
                    env=environment,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
