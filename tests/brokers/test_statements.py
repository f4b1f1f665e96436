"""Statements: each is declared, stands in the file of a verb, says what it does, and is used."""

import re
from inspect import get_annotations
from pathlib import Path

import pytest

import penstock
from penstock.brokers.postgres.statements import PostgresStatements
from penstock.brokers.sql_files import SqlFiles
from penstock.brokers.sqlite.statements import SqliteStatements
from penstock.brokers.tables.statements import Statements
from penstock.tools.bench.postgres.statements import BenchStatements
from penstock.tools.bench.raw import RawStatements

SOURCE = Path(penstock.__file__).parent
FILES = sorted(
    path
    for path in SOURCE.rglob("sql/*.sql")
    if path.stem not in {"schema", "roles"}  # scripts
)


class Two(SqlFiles):
    first: str
    second: str


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        (Statements, "brokers/tables"),
        (SqliteStatements, "brokers/sqlite"),
        (PostgresStatements, "brokers/postgres"),
        (BenchStatements, "tools/bench/postgres"),
        (RawStatements, "tools/bench"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_every_statement_is_used(kind, folder):
    code = "".join(path.read_text(encoding="utf-8") for path in (SOURCE / folder).rglob("*.py"))

    unused = set(get_annotations(kind)) - set(re.findall(r"\bsql\.([a-z_]+)\b", code))

    assert unused - {"schema"} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_every_file_and_every_statement_is_opened_by_a_comment(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    after_names = [lines[n + 1] for n, line in enumerate(lines) if line.startswith("-- name: ")]

    assert lines[0].startswith("-- ")
    assert not lines[0].startswith("-- name: ")
    assert after_names
    assert [line for line in after_names if not line.startswith("-- ")] == []


def test_a_statement_is_its_section_and_a_file_without_sections_is_one(tmp_path):
    tmp_path.joinpath("verb.sql").write_text("-- Why.\n\n-- name: first\n-- One.\nselect 1;\n\n")
    tmp_path.joinpath("second.sql").write_text("-- All of it.\nselect 2;\n")

    sql = Two(tmp_path)

    assert (sql.first, sql.second) == ("-- One.\nselect 1;\n", "-- All of it.\nselect 2;\n")


def test_what_is_declared_and_what_the_files_hold_is_the_same(tmp_path):
    tmp_path.joinpath("verb.sql").write_text(
        "-- name: first\nselect 1;\n-- name: third\nselect 3;\n"
    )

    with pytest.raises(TypeError, match="not those that Two declares: second, third"):
        Two(tmp_path)


def test_no_two_statements_have_one_name(tmp_path):
    tmp_path.joinpath("one.sql").write_text(
        "-- name: first\nselect 1;\n-- name: second\nselect 2;\n"
    )
    tmp_path.joinpath("two.sql").write_text("-- name: first\nselect 3;\n")

    with pytest.raises(TypeError, match=r"two statements first in .*; one is in two\.sql"):
        Two(tmp_path)
