"""What a person sees on the terminal when the store is away, full or newer (S5).

`raises(match=...)` finds a sentence anywhere in fifty lines: these tests look at all of them.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import penstock.spark
from penstock.brokers import open_broker
from penstock.errors import PenstockError, StoreFull, StoreUnreachable
from penstock.spark.one_sentence import error_in, line_of_user, one_sentence

PROGRAM = Path(__file__).parent / "programs" / "sentences.py"
AWAY = (
    r"the store postgresql://ada:\*\*\*@127\.0\.0\.1:1/none does not answer: connection failed:"
    r" .*Connection refused; start it, or check host and port in the URL"
)
NEWER = r".*newer\.db has schema 999, this Penstock knows \d+; upgrade .*"
SEEN = {
    "write, away": AWAY,
    "read, away": AWAY,
    "stream, away": AWAY,
    "apply, away": AWAY,
    "write, login refused": r"the store .*nobody.* refuses this login: .*; correct the user, .*",
    "write, newer": NEWER,
    "read, newer": NEWER,
    "write, full": r".*(full|no room).*",
    "ended by it": AWAY,
}


def terminal(folder: Path, server_url: str) -> dict[str, list[str]]:
    """What the program printed, by step."""
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("newer", "full")}
    for url in urls.values():
        open_broker(url).close()
    with sqlite3.connect(folder / "newer.db") as connection:
        connection.execute("update penstock_meta set value = '999' where name = 'schema'")
    connection.close()
    place = urlsplit(server_url)
    urls["no_login"] = f"postgresql://nobody:hidden@{place.hostname}:{place.port}/postgres"
    config = {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps({**urls, "config": config})],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    assert "hidden" not in ran.stderr
    # Nor is one in the text of the error, for those who print or log it themselves.
    with_traceback = [line for line in ran.stdout.splitlines() if line.endswith(": True")]
    assert with_traceback == ["a UDF of the user: True"]
    steps = re.split(r"^== (.*)\n", ran.stderr, flags=re.MULTILINE)
    return {name: text.splitlines() for name, text in zip(steps[1::2], steps[2::2], strict=True)}


# REQUIREMENTS S5
@pytest.mark.timeout(600)  # a session of its own: that of others prints on another terminal
def test_a_store_that_is_away_full_or_newer_is_one_sentence_on_the_terminal(
    tmp_path, postgres_server_url
):
    seen = terminal(tmp_path, postgres_server_url)

    of_user = "\n".join(seen.pop("a UDF of the user"))
    assert "1 // row.number" in of_user  # its traceback is whole
    assert "ZeroDivisionError" in of_user
    # For a query that nobody waits for, the log is the only place.
    assert seen["stream, away"].pop(0).startswith("spark: ERROR MicroBatchExecution: Query [")
    at = r"  sentences\.py, line \d+: .*"
    other = {
        step: lines
        for step, lines in seen.items()
        if not re.fullmatch(f"penstock: {SEEN[step]}\n{at}", "\n".join(lines))
    }
    assert other == {}
    assert seen.keys() == SEEN.keys()


def test_the_log_is_silent_about_tasks_that_end_with_the_stage_of_one_that_failed():
    """Whether there are any is a matter of moments."""
    log = Path(penstock.spark.__file__).with_name("log4j2.properties").read_text(encoding="utf-8")
    [denied] = re.findall(r"^appender\.stderr\.filter\.ours\.regex = (.*)$", log, re.MULTILINE)
    ended = (
        "Lost task 1.0 in stage 1.0 (TID 2) (localhost executor driver): {} An exception was"
        " thrown from the Python worker: Traceback (most recent call last):\n  File"
    )

    pattern = denied.replace("\\\\", "\\")
    assert re.fullmatch(pattern, ended.format("TaskKilled (Stage cancelled: [PYTHON_EXCEPTION]"))
    assert not re.fullmatch(pattern, ended.format("[PYTHON_EXCEPTION]"))


def test_an_error_in_the_text_of_another():
    text = "[X] y: penstock.brokers.postgres.errors.StoreBusy: busy: try again\n at java.lang.X"

    found = error_in(f"a\npenstock.errors.StoreFull: no room\n{text}")

    assert (type(found), str(found)) == (PenstockError, "busy: try again")
    assert isinstance(error_in("z penstock.errors.StoreFull: no room"), StoreFull)
    assert error_in("java.lang.Error: none of ours") is None


def test_only_what_spark_raised_is_made_a_sentence():
    with pytest.raises(ValueError, match="a text of the user"), one_sentence():
        raise ValueError("penstock.errors.StoreFull: a text of the user")
    with pytest.raises(StoreUnreachable, match="away"), one_sentence():
        raise StoreUnreachable("away")


def test_the_line_of_a_program_is_told_also_where_a_folder_has_our_name(tmp_path):
    program = tmp_path / "penstock" / "shop.py"
    program.parent.mkdir()
    program.write_text("raise RuntimeError\n")

    with pytest.raises(RuntimeError) as raised:
        runpy.run_path(str(program))

    assert line_of_user(raised.tb) == "\n  shop.py, line 1: raise RuntimeError"
