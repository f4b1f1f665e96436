"""A store from outside: installed as wheels are, opened by its URL, and held to the suite."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
USE = """
import sys
from penstock import App
from penstock.brokers import open_broker, store_condition
from penstock.worker import Worker

url = sys.argv[1]
app = App(url)

@app.task(name="add")
def add(a: int, b: int) -> int:
    return a + b

handles = [add.enqueue(n, n) for n in range(3)]
Worker(app, threads=1, drain=True).work()
last = add.enqueue(20, 1)
app.close()

broker = open_broker(url, create=False)
print([broker.get(each.id).result for each in handles], broker.get(last.id).state)
broker.close()
print(store_condition(url).kind, App(url).broker.traits.name)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an installer leaves it: both packages, with what they register."""
    folder = tmp_path_factory.mktemp("installed")
    for project in (HOUSE, HOUSE / "examples" / "foreign_broker"):
        run(["-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=project)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
        wheel.unlink()
    return folder


def run(words: list[str], cwd: Path, path: Path | None = None, code: int = 0) -> str:
    """What a Python says that finds these packages first."""
    known = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=known | ({"PYTHONPATH": str(path)} if path else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout + done.stderr


def test_it_is_opened_by_its_url_and_keeps_what_it_was_given(installed, tmp_path):
    said = run(["-c", USE, f"jsonlog://{tmp_path / 'jobs.jsonl'}"], tmp_path, installed)

    assert said.splitlines() == ["[b'0', b'2', b'4'] ready", "jsonlog the JSON log"]


def test_a_url_that_nobody_registered_is_refused_with_what_is_installed(installed, tmp_path):
    program = "from penstock.brokers import open_broker\nopen_broker('nosuch://me:secret@host/x')"
    output = run(["-c", program], tmp_path, installed, code=1)

    [said] = [line for line in output.splitlines() if "Refused" in line]
    assert "'nosuch://me:***@host/x' is not the URL of a store" in said
    assert "shards:///path/to/shards.toml, jsonlog: and memory:" in said


def test_it_passes_the_suite_as_it_is_shipped(installed, tmp_path):
    said = run(
        [
            *(
                "-m",
                "pytest",
                "-q",
                "-pno:cacheprovider",
                "-pno:schemathesis",
                "-p",
                "penstock_jsonlog.suite",
            ),
            *("--rootdir", str(tmp_path), "--basetemp", str(tmp_path / "stores")),
            *("--pyargs", "penstock.testing.conformance.core"),
        ],
        tmp_path,
        installed,
    )

    assert "not run, as the store does not declare 'begins': 10" in said
    assert " passed, 10 deselected" in said
    assert "skipped" not in said
