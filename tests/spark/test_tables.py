"""The tables' contract: the documentation shows the columns that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.spark.source.tables import SCHEMA_VERSION, TABLES, columns_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark-tables.md"


@pytest.mark.parametrize("table", sorted(TABLES))
def test_the_documented_columns_are_the_table_s(table):
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {table}\n")[1].split("\n## ")[0]

    documented = re.findall(r"^\| `(\w+)` \| (\S+) \|", part, re.MULTILINE)

    assert dict(documented) == columns_of(table)
    assert [name for name, _ in documented] == list(columns_of(table))


def test_the_documented_version_is_the_table_s():
    assert f"`schema_version` is {SCHEMA_VERSION}." in PAGE.read_text(encoding="utf-8")


def test_every_table_ends_with_its_version():
    assert {list(columns_of(table))[-1] for table in TABLES} == {"schema_version"}
