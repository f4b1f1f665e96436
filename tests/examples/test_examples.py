"""Every example runs as a stranger would run it, says what it shows, and ends by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SAYS = {
    "dark_queue": [  # D24, D25, D31 to D35, D57
        "after  0 minutes, runs: 2",
        "after  5 minutes, runs: 2",
        "after 10 minutes, runs: 1",
        "after 15 minutes, runs: 0",
        "the one that always fails: ['ready', 'ready', 'failed']",
        "paused: 1500 jobs wait, 0 ran",
        "unblocked: 1500 ran",
    ],
    "dark_cron": [  # D10, D11, D60, D61
        "at once: clean",
        "in a day: clean, clean, report of Sunday, 03:00, clean",
        "its jobs are deleted, and the next time is the same: True",
        "after three days: clean",
        "paused: clean 0 times",
        "on demand: clean 1 time",
    ],
    "bee_strategies": [  # B16 to B23
        "success: kept is succeeded, deleted is None",
        "error, keep: runs 1 times, then is failed",
        "error, delete: runs 1 times, then is gone",
        "error, repeat: runs 4 times, then is ready",
        "error, repeat 1, else keep: runs 2 times, then is failed",
        "error, repeat 1, else delete: runs 2 times, then is gone",
        "timeout, repeat 1, else keep: runs 2 times, then is failed",
        "timeout, repeat 1, else delete: runs 2 times, then is gone",
        "40 seconds: 10 beats, 39 others",
    ],
    "bee_map_reduce": [  # B32, B33: on every store, by message passing alone
        f"{store}{line}"
        for store in ("memory", "sqlite", "postgresql", "redis")
        for line in (
            ", from_outside: 25 squares, 1 reduce, 5525",
            ", from_inside: 25 squares, 1 reduce, 5525",
            ": 0 left behind",
        )
    ],
    "vitess_group": [  # V25, V26, V46
        "closed 20 orders, after all 20: True",
        "21 events, never more than five at once: True",
        "21 events, never more than ten a second: True",
    ],
    "rewards_flow": [
        "finish is cancelled, because rewards_flow:reward is failed",
        "after the retry, finish is waiting",
        "discord: granted, telegram: granted, email: granted",
        "with what there is: discord: revoked",
        "words on all pages: 21",
    ],
    "guild_access": [  # G13, G17, G19 to G29, G42, G43, G50, G56, G57
        "access True, member True, rewards ['discord', 'github']",
        "done: True, without success: 2, message: ''",
        "failed in manage-reward:telegram: ConnectionError: telegram does not answer",
        "tried again: 2 jobs",
        "rewarded on discord, telegram, github, without success: 0",
        "user 62 is member of 1985",
        "found by its role as well: True",
        "deleted, and found no more: True",
        "the same on Redis: True",
    ],
    "avail_etl": [  # A1, A2, A13, A35
        "the worker is stopped, the job goes on: True",
        "attempt 1: ProcessDied: its process ended without an outcome: SIGKILL",
        "attempt 2: ConnectionError: the warehouse does not answer",
        "attempt 3: done",
        "extracted 1 time, transformed 1 time",
        "rows loaded again, behind the snapshot: 4",
        "sum of the squares: 2870",
    ],
    "transactional": [
        "mallory: not from you",
        "mallory, once more: not from you",
        "4 orders, 4 jobs",
        "one worker died, and the invoices are for the orders [1, 2, 3, 4]",
    ],
    "postgres_transactions": [  # V4, V35
        "mallory: not from you",
        "3 jobs for ada, bob, grace",
        "invoices, and orders that have one: (3, 3)",
    ],
    "sql_trigger": [
        "welcome ada, number 1",
        "welcome bob, number 2",
        "priority 101: a whole number from -100 to 100, higher goes first",
    ],
    "fastapi_shop": [
        "200 403",
        "order 1 is confirmed",
        "1 order, 1 job",
    ],
    "flask_shop": [
        "201 403",
        "Ada's shop: order 1 is confirmed",
        "1 job has run",
    ],
    "django_shop": [
        "mallory: not from you",
        "[('ada', True), ('bob', True)], 2 jobs ran",
    ],
    "tenant_headers": [
        "acme trace-1 publish cat.png",
        "globex trace-2 publish dog.png",
        "initech  publish cow.png",
    ],
    "resources": [
        "mail 51 to the last one",
        "opened ['mailer', 'pool'], closed ['mailer', 'pool']",
    ],
}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if "PENSTOCK" not in name}
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("name", SAYS)
def test_an_example_does_what_it_says(tmp_path, name):
    done = run(EXAMPLES / f"{name}.py", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    for line in SAYS[name]:
        assert line in lines, done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_tests_of_the_example_pass(tmp_path):
    file = EXAMPLES / "testing_your_tasks.py"

    done = run("-m", "pytest", "-q", "-pno:cacheprovider", "-pno:schemathesis", file, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout
    assert not (EXAMPLES / "production.db").exists()


def test_every_example_is_run_by_a_test():
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}

    assert scripts == {*SAYS, "quickstart", "testing_your_tasks"}  # quickstart: tests/docs
