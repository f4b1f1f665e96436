"""The lines of find: in columns, one per job, whatever a job was called with."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rich.cells

TASKS = """
from penstock import App

app = App()


@app.task(name="a.long.module.name:send_the_invoice_to_the_customer", queue="mail")
def send(text: str) -> None:
    raise ValueError(f"cannot send\\n{text}")
"""
TEXTS = [
    "short",
    "x" * 5000,
    "漢字" * 300,
    "\x1b[31mred\x1b]0;title\x07\nnew\tline" * 30,
    "…" * 400,
]


@pytest.fixture
def letters(cli):
    """A job for each of the texts, the last of them first."""
    (cli.folder / "letters.py").write_text(TASKS)
    for text in TEXTS:
        cli("enqueue", "letters:send", text)
    cli("run", "letters:send", "last", code=1)  # and with it all the others
    return cli


def on_a_terminal(folder: Path, width: int, *words: str) -> list[str]:
    """The lines that a command prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    ):
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # as Linux says that the other end is closed
            pass
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()


def in_columns(lines: list[str], heads: str) -> None:
    """Whether every line has something below each head, and a gap before it."""
    assert lines[0].split() == heads.split()
    cells = [_cells_of(line) for line in lines]
    for head in heads.split()[1:]:
        place = lines[0].index(head)
        assert all(line[place - 2 : place] == "  " for line in cells), head
        assert all(line[place : place + 1].strip() for line in cells), head


def _cells_of(line: str) -> str:
    """The line with as many signs as it has cells on a terminal."""
    return "".join(sign + "." * (rich.cells.cell_len(sign) - 1) for sign in line)


def test_piped_lines_are_in_columns_and_of_a_sane_width(letters):
    lines = letters("find").stdout.splitlines()

    assert len(lines) == 7
    in_columns(lines, "id state task queue enqueued what")
    assert all(rich.cells.cell_len(line) <= 200 for line in lines)
    assert sum(line.endswith("…") for line in lines) == 4
    assert lines[1].endswith('ValueError: cannot send; text="last"')
    assert all(sign.isprintable() for line in lines for sign in line)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_lines_on_a_terminal_are_no_wider_than_it(letters, width):
    lines = on_a_terminal(letters.folder, width, "find")

    assert len(lines) == 7
    wide = "queue enqueued " if width >= 110 else ""
    in_columns(lines, f"id state task {wide}what")
    assert all(rich.cells.cell_len(line) <= width for line in lines)
    assert all("customer  " in line for line in lines[1:])


def test_full_cuts_nothing_and_still_has_columns(letters):
    lines = letters("find", "--full").stdout.splitlines()

    in_columns(lines, "id state task queue enqueued what")
    for line, text in zip(lines[2:], reversed(TEXTS), strict=True):
        assert line.endswith(json.dumps(text, ensure_ascii=False))
