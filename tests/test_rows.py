"""Requirement rows that a test must name in its docstring, so that none is forgotten on the way.

A row is a promise of one of the systems that inspired this one (see the requirements that a row's
letter stands for: D Dark, V Vitess, A AVAIL, G Guild, B haskell-bee). A row that describes a
mechanism which does not exist here is proved by its effect.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUITE = TESTS.parent / "src" / "penstock" / "testing" / "conformance"
ROW = re.compile(r"\b([DVAGB]\d{1,2})\b(?: to ([DVAGB]\d{1,2})\b)?")


def rows(letter: str, first: int, last: int | None = None) -> list[str]:
    return [f"{letter}{number}" for number in range(first, (last or first) + 1)]


ROWS = [
    *rows("D", 1, 22),
    *rows("D", 31, 41),
    *rows("D", 57, 61),
    *rows("V", 4, 7),
    *rows("V", 25, 27),
    *rows("V", 35),
    *rows("V", 44, 46),
    *rows("A", 19, 20),
    *rows("A", 49, 51),
    *rows("G", 1, 63),
    *rows("B", 22, 33),
]


def docstrings(path: Path) -> Iterator[str]:
    """Of the tests of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield ast.get_docstring(node) or ""


def in_words(text: str) -> Iterator[str]:
    """The rows that a text names, one by one or from one to another."""
    for first, last in ROW.findall(text):
        yield first
        if last:
            yield from rows(first[0], int(first[1:]), int(last[1:]))


@pytest.fixture(scope="module")
def named() -> set[str]:
    return {
        row
        for folder in (TESTS, SUITE)
        for path in folder.rglob("test_*.py")
        for text in docstrings(path)
        for row in in_words(text)
    }


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_named_by_a_test(named, row):
    assert row in named
