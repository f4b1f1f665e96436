"""The same verbs everywhere: the reference names every command, verb and route there is."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.broker.bulk import Bulk
from penstock.broker.control import Control
from penstock.broker.core import Core
from penstock.broker.look import Look
from penstock.cli.root import root
from penstock.web.routes import ROUTES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"
WORDS = re.compile(r"`([^`]+)`")


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    part = REFERENCE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def commands() -> set[str]:
    return {command.name for command in root.registered_commands if command.name is not None}


def verbs() -> set[str]:
    fields = {"clock", "traits"}
    groups = (Core, Control, Look, Bulk)
    return {name for group in groups for name in vars(group) if not name.startswith("_")} - fields


def named(cells: list[str]) -> set[str]:
    return {word for cell in cells for word in WORDS.findall(cell)}


def test_every_route_stands_there_with_its_role_and_no_other():
    said = {(*row[3].strip("`").split(" "), row[4]) for row in table("Verbs and routes")}

    rest = [route for route in ROUTES if route.path.startswith("/api/")]
    assert said == {(route.method, route.path, str(route.role)) for route in rest}
    assert len(table("Verbs and routes")) == len(rest)


def test_every_command_has_a_route_or_is_left_out_with_a_reason():
    with_route = named([row[1] for row in table("Verbs and routes")])
    left_out = {
        word.removeprefix("penstock ")
        for word in named([row[0] for row in table("Not in the REST API")])
        if word.startswith("penstock ")
    }

    # `queue set` is the command `queue` and the first of its words.
    assert {words.split(" ")[0] for words in with_route | left_out} == commands()
    assert not with_route & left_out


def test_every_verb_of_a_store_has_a_route_or_is_left_out_with_a_reason():
    with_route = named([row[2] for row in table("Verbs and routes")])
    left_out = {
        word
        for word in named([row[0] for row in table("Not in the REST API")])
        if not word.startswith("penstock ")
    }

    assert with_route | left_out == verbs()
    assert not with_route & left_out
    assert all(reason for _, reason in table("Not in the REST API"))
