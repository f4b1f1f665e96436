"""What a worker logs of failed attempts, as whoever started it reads it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from penstock.job import Job

TASKS = """
import time

from penstock import App, Retry

app = App()


@app.task
def plain(n: int) -> int:
    return 1 // n


@app.task(retry=Retry(limit=1, delay=0))
def again(text: str) -> None:
    raise ValueError(f"first of {text}\\nsecond line")


@app.task
async def awaited() -> None:
    raise LookupError("async")


@app.task(mode="process")
def apart(text: str) -> None:
    raise OSError(f"process {text}")


@app.batch_task(size=10)
def together(items: list[int]) -> None:
    raise ExceptionGroup("batch", [ValueError("a"), ValueError("b")])


@app.task(timeout=0.2)
def slow() -> None:
    time.sleep(30)


@app.task(secret=("card",), retry=Retry(limit=1, delay=0))
def charge(card: str) -> None:
    raise ValueError(f"card {card} is refused, {card!r}")


@app.task(secret=("card",), mode="process")
def charge_apart(card: str) -> None:
    raise ValueError(f"card {card} is refused")


@app.batch_task(size=10, secret=("cards",))
def charge_all(cards: list[str]) -> None:
    raise ValueError(f"cards {cards} are refused")


@app.task
def fine() -> int:
    return 1
"""
CARD = "4242-hidden-4242"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (ERROR|WARNING|INFO) +\d+ (.*)")


@pytest.fixture
def failing(cli):
    """A project whose jobs all fail, but one."""
    (cli.folder / "failing.py").write_text(TASKS)
    for words in (
        ["plain", "0"],
        ["again", "it"],
        ["awaited"],
        ["apart", "x"],
        ["together", "1"],
        ["slow"],
        ["charge", CARD],
        ["charge_apart", CARD],
        ["charge_all", CARD],
        ["fine"],
    ):
        cli("enqueue", f"failing:{words[0]}", *words[1:])
    store = cli.store()
    store.enqueue([Job(task="failing:plain", body=b'{"args":{"n":"no number"}}', queue="bad")])
    store.close()
    return cli


def drained(project, *options: str) -> list[str]:
    """The log of a worker that runs all there is."""
    worker = project.start("worker", "failing", "--drain", "--processes", "1", *options)
    said, errors = worker.communicate(timeout=120)
    assert (worker.returncode, said) == (0, ""), errors
    return errors.splitlines()


def test_every_failed_attempt_is_in_the_log(failing):
    log = drained(failing)

    told = [match.groups() for match in map(LINE.fullmatch, log) if match]
    failed = [(level, text.partition(" (job ")) for level, text in told if " failed: " in text]
    assert sorted((level, text[0]) for level, text in failed if "charge" not in text[0]) == [
        ("ERROR", "failing:again failed: ValueError: first of it"),
        ("ERROR", "failing:apart failed: OSError: process x"),
        ("ERROR", "failing:awaited failed: LookupError: async"),
        ("ERROR", "failing:plain failed: ZeroDivisionError: integer division or modulo by zero"),
        ("ERROR", "failing:plain failed: plain(n: int) -> int: n: Expected `int`, got `str`"),
        ("ERROR", "failing:slow failed: TimeoutError: ran longer than its timeout of 0.2 s"),
        ("ERROR", "failing:together failed: ExceptionGroup: batch (2 sub-exceptions)"),
        ("WARNING", "failing:again failed: ValueError: first of it"),
    ]
    ids = {job["id"] for job in failing.lines("find", "state:failed")}
    assert {text[2][:36] for _, text in failed} == ids
    source = [line.strip() for line in log]
    line = TASKS.splitlines().index("    return 1 // n") + 1
    assert f'File "{failing.folder}/failing.py", line {line}, in plain' in source
    assert "return 1 // n" in source
    assert 'raise OSError(f"process {text}")' in source
    secret = [(level, text[0]) for level, text in failed if "charge" in text[0]]
    assert [level for level, _ in secret].count("WARNING") == 1
    assert all(re.search(r"ValueError at .*failing\.py:\d+ in charge", text) for _, text in secret)
    assert len(secret) == 4
    assert CARD not in "\n".join(log)
    assert "refused" not in "\n".join(log)


def test_the_log_is_one_json_object_a_line(failing):
    log = [json.loads(line) for line in drained(failing, "--log-format", "json")]

    assert all({"time", "level", "logger", "message"} <= line.keys() for line in log)
    assert all(
        re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in log
    )
    assert any(line["message"].startswith("tasks: ") for line in log)
    lines = [line for line in log if "exception" in line]
    [unreadable] = [line for line in lines if line["queue"] == "bad"]
    assert (unreadable["reason"], unreadable["error"]) == (
        "unreadable",
        "plain(n: int) -> int: n: Expected `int`, got `str`",
    )
    failed = {(line["task"], line["attempt"]): line for line in lines}
    assert (len(lines), len(failed)) == (12, 11)
    first, last = failed["failing:again", 1], failed["failing:again", 2]
    assert (first["level"], first["logger"], first["queue"]) == (
        "warning",
        "penstock.worker",
        "default",
    )
    assert (first["exception"], first["error"]) == ("ValueError", "first of it")
    assert 'raise ValueError(f"first of {text}' in first["traceback"]
    assert first["retry_at"].endswith("Z")
    assert (last["level"], last["retry_at"]) == ("error", None)
    assert last["id"] == first["id"]
    assert failed["failing:slow", 1]["exception"] == "TimeoutError"
    for (task, _), line in failed.items():
        if "charge" in task:
            assert (line["exception"], line["error"], line["traceback"]) == (
                "ValueError",
                None,
                None,
            )
            assert "failing.py:" in line["place"]
    assert CARD not in json.dumps(log)


def test_a_format_that_is_none_is_refused(shop):
    for command in ("worker", "dev", "dashboard"):
        assert (
            "--log-format 'xml': text or json"
            in shop(command, "shop", "--log-format", "xml", code=2).stderr
        )


@pytest.mark.parametrize("colour", [True, False])
def test_dev_logs_in_colour_on_a_terminal_that_wants_it(failing, colour):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "TMPDIR": str(failing.folder)}
    environment.pop("NO_COLOR", None)
    if not colour:
        environment["NO_COLOR"] = "1"
    dev = subprocess.Popen(
        [sys.executable, "-m", "penstock", "dev", "failing"],
        cwd=failing.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said, until = b"", time.monotonic() + 120
    try:
        while b"failing:plain failed" not in said and time.monotonic() < until:
            if select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 65536)
    finally:
        dev.send_signal(signal.SIGTERM)
        dev.wait(60)
        os.close(ours)
    text = said.decode()
    assert ("\x1b[31mfailing:plain failed: ZeroDivisionError" in text) is colour
    assert "failing:plain failed: ZeroDivisionError" in text
    assert "store: " in text
