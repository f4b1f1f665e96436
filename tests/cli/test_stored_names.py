"""What a stored row names is looked up, and never imported, however it is spelt."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys

import psycopg
import pytest

APP = """
from penstock import App

app = App()


@app.task
def add(a: int, b: int) -> int:
    return a + b
"""

BY_JOB = [
    ["debug"],
    ["debug", "--app", "shop"],
    ["why"],
    ["find"],
    ["retry"],
    ["copy"],
    ["detached", "run", "--app", "shop"],
]
BY_STORE = [["find"], ["history"], ["count"], ["doctor"]]

# Run in a process of its own: tells of every import, and of every file that is opened.
AUDITED = """
import json, sys

EVENTS = {"import", "open", "exec", "subprocess.Popen", "os.system", "os.listdir"}
seen = []

def hear(event, args):
    if event in EVENTS and any("canary" in str(each) for each in args):
        seen.append([event, *map(str, args)])

sys.addaudithook(hear)

from typer.testing import CliRunner

from penstock.cli.root import root

codes = {}
for words in json.load(sys.stdin):
    codes[words[0]] = CliRunner().invoke(root, words).exit_code
print(json.dumps({"codes": codes, "seen": seen}))
"""


@pytest.fixture
def project(cli):
    """A project, and beside it code that leaves a mark wherever it is run."""
    (cli.folder / "shop.py").write_text(APP)
    mark = cli.folder / "mark"
    planted = f"open({str(mark)!r}, 'w').close()\nfrom penstock import App\napp = App()\n"
    planted += "@app.task\ndef f() -> None: ...\n"
    (cli.folder / "elsewhere" / "canary_package").mkdir(parents=True)
    for place in (
        "elsewhere/canary.py",
        "elsewhere/canary_package/__init__.py",
        "elsewhere/canary",
        "canary.py",
        "canary_module.py",
    ):
        (cli.folder / place).write_text(planted)
    cli.mark = mark
    return cli


def names(folder):
    """Tasks that no app has, in the words of whoever wants code to be run."""
    there = f"{folder}/elsewhere"
    return [
        f"{there}/canary.py:f",
        f"{there}/canary:f",
        f"{there}/canary.py",
        f"{there}/../canary.py:f",
        f"{there}/canary_package:f",
        "canary.py:f",
        "./canary.py:f",
        "elsewhere/canary.py:f",
        "../canary:f",
        "canary.py :f",
        " canary.py:f",
        "canary.PY:f",
        "canary_module:f",
        "canary_module:app",
        "canary_module",
        "elsewhere.canary:f",
        "elsewhere.canary_package:f",
        "canary.py:f\n",
        "canary_module\n:f",
        "canary.\N{CYRILLIC SMALL LETTER ER}y:f",
        "canary\N{FULLWIDTH FULL STOP}py:f",
    ]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, project):
    if request.param == "sqlite":
        return f"sqlite:///{project.folder / 'penstock.db'}"
    return request.getfixturevalue("postgres_url")


def plant(url, project, task):
    """A job whose row names this task, whatever a way in would have said to it."""
    queue = f"queue-{os.urandom(4).hex()}"
    job = project.json("enqueue", "shop:add", "1", "2", "--url", url, "--queue", queue)["id"]
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            done = connection.execute(
                "update penstock_lane set task = ? where queue = ?", (task, queue)
            )
        connection.close()
    else:
        with psycopg.connect(url) as connection:
            done = connection.execute(
                "update penstock.lane set task = %s where queue = %s", (task, queue)
            )
    assert done.rowcount == 1
    return job


def audited(project, commands):
    done = subprocess.run(
        [sys.executable, "-c", AUDITED],
        input=json.dumps(commands),
        cwd=project.folder,
        text=True,
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_debug_imports_nothing_that_a_row_names(project, url):
    for name in names(project.folder):
        job = plant(url, project, name)

        without = project("debug", job, "--url", url, code=2)
        named = project("debug", job, "--url", url, "--app", "shop", code=2)

        assert "name it with --app" in without.stderr, name
        assert "there is no task" in named.stderr, name
        assert not project.mark.exists(), name


def test_no_command_opens_or_imports_what_a_row_names(project):
    url = f"sqlite:///{project.folder / 'penstock.db'}"
    jobs = [plant(url, project, name) for name in names(project.folder)]
    commands = [[*words, job, "--url", url] for job in jobs[::3] for words in BY_JOB]

    told = audited(project, [*commands, *([*words, "--url", url] for words in BY_STORE)])

    assert told["seen"] == []
    assert told["codes"] == {
        "debug": 2,  # without --app, and with one that has no such task
        "why": 0,
        "find": 0,
        "retry": 1,  # it is ready
        "copy": 2,  # it has not ended
        "detached": 2,  # it is no detached task of that app
        "history": 0,
        "count": 0,
        "doctor": told["codes"]["doctor"],  # as the machine is
    }
    assert not project.mark.exists()


def test_a_worker_leaves_alone_what_no_app_of_its_own_has(project):
    url = f"sqlite:///{project.folder / 'penstock.db'}"
    for name in names(project.folder):
        plant(url, project, name)
    own = project.json("enqueue", "shop:add", "1", "2", "--url", url)["id"]

    with project.start("worker", "shop", "--processes", "1", "--url", url) as worker:
        try:
            said = project("run", "shop:add", "2", "3", "--url", url).stdout
        finally:
            worker.terminate()
            worker.communicate()

    assert said == "5\n"
    assert project.json("why", own, "--url", url)["state"] == "succeeded"
    assert not project.mark.exists()
