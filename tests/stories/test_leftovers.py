"""A test run that is interrupted leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import MARK
from tests.stories.conftest import alive, eventually

HOUSE = Path(__file__).parents[2]
# A detached process, one that it started and that knows of no run, and a server.
NESTED = """
import os, subprocess, sys, time
from pathlib import Path
from penstock.testing.postgres import Server

DETACHED = '''
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
print(child.pid, flush=True)
time.sleep(600)
'''


def test_that_never_ends():
    with Server() as server:
        command = [sys.executable, "-c", DETACHED]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as detached:
            pids = (os.getpid(), server.pid, detached.pid, int(detached.stdout.readline()))
            Path("new").write_text(" ".join(map(str, (*pids, server.data))))
            Path("new").rename("pids")
            time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_interrupted_leaves_no_process_behind(number, tmp_path):
    (tmp_path / "test_nested.py").write_text(NESTED)
    (tmp_path / "pytest.ini").touch()
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "tests.leftovers", "-n", "1"],
            cwd=tmp_path,
            env={**environment, "PYTHONPATH": str(HOUSE)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    eventually((tmp_path / "pids").exists, what=(tmp_path / "log").read_text())
    *pids, data = (tmp_path / "pids").read_text().split()

    if number == signal.SIGINT:
        os.killpg(run.pid, number)  # as a terminal does
    else:
        run.send_signal(number)
    run.wait(60)

    eventually(lambda: not any(alive(int(pid)) for pid in pids), what=f"{pids} are gone")
    eventually(lambda: not Path(data).exists(), what=f"{data} is gone")
