"""Every row of the requirements is on their page once, with its tests or with what is missing.

To close a row, name its tests on docs/reference/requirements.md and take it out of `OPEN`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.docs.promises import ROOT, blocks, faults_of_tests

PAGE = ROOT / "docs" / "reference" / "requirements.md"
# Dark, Vitess, AVAIL, Guild, haskell-bee, Spark: the rows of each are numbered from 1.
ROWS = {"D": 67, "V": 74, "A": 53, "G": 63, "B": 55, "S": 32}
OPEN = (
    "V1 V41 V58",
    "S10",
)

_ROW = re.compile(r"\| ([A-Z]\d+) \| (.+?) \| (.*) \|")
_TEST = re.compile(r"`((?:src|tests)/[^`]*)`")


class Row(NamedTuple):
    id: str
    promise: str
    mark: str  # open, not done, or empty: proven
    tests: list[str]
    words: str  # beside the mark and the tests


def rows_of(page: str) -> list[Row]:
    found = (_ROW.fullmatch(block.text) for block in blocks(page) if block.kind == "row")
    return [_row(*match.groups()) for match in found if match is not None]


def _row(id: str, promise: str, cell: str) -> Row:
    mark = re.match(r"\*\*(open|not done)\*\*: ", cell)
    words = _TEST.sub("", cell[mark.end() if mark else 0 :]).strip(" ,")
    return Row(id, promise, mark[1] if mark else "", _TEST.findall(cell), words)


def faults(page: str) -> list[str]:
    """What is wrong with the page, a sentence each."""
    rows = rows_of(page)
    ids = [row.id for row in rows]
    every = [f"{letter}{n + 1}" for letter, count in ROWS.items() for n in range(count)]
    still = " ".join(OPEN).split()
    found = [f"{id} is on the page {ids.count(id)} times" for id in every if ids.count(id) != 1]
    found += [f"{id} is no row of the requirements" for id in ids if id not in every]
    for row in rows:
        if row.mark and not row.words:
            found.append(f"{row.id} is {row.mark}: say what is missing, or why")
        if not row.mark and not row.tests:
            found.append(f"{row.id} names no test: write one, or mark it open")
        if not row.mark and row.words:
            found.append(f"{row.id}: {row.words!r} is neither a mark nor a test")
        if (row.mark == "open") != (row.id in still):
            found.append(f"{row.id} is open on the page or in OPEN, and not in both")
        if row.tests:
            found += [f"{row.id}: {fault}" for fault in faults_of_tests(row.tests)]
    return found


def test_every_row_is_proven_or_says_what_is_missing() -> None:
    found = faults(PAGE.read_text(encoding="utf-8"))

    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("| D2 |", "| D1 |", "D2 is on the page 0 times"),
        ("| D2 |", "| D1 |", "D1 is on the page 2 times"),
        ("| D2 |", "| D200 |", "D200 is no row"),
        ("::test_d2_a_producer", "::test_d2_nobody", "there is no test"),
        ("| `tests/stories/test_rows_postgres.py::test_d3", "| **open**: `tests/x", "D3 is open:"),
        (
            "| `tests/stories/test_rows_postgres.py::test_d4",
            "| works `tests/x",
            "'works' is neither",
        ),
        (
            "| `tests/stories/test_rows_postgres.py::test_d4",
            "| **open**: x `tests/x",
            "D4 is open on",
        ),
    ],
)
def test_what_is_wrong_with_a_row_is_named(old: str, new: str, fault: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert old in page

    assert any(fault in each for each in faults(page.replace(old, new, 1)))


def test_a_row_that_only_full_size_tests_prove_is_named() -> None:
    soak = "tests/stories/test_restarts_postgres.py::test_postgres_killed_ten_times_under_load"
    page = f"| Row | Promise | Tests |\n|---|---|---|\n| V6 | Once. | `{soak}` |\n"

    assert any(each.startswith("V6: `make test` runs none of") for each in faults(page))
