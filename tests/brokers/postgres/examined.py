"""What the doctor finds on a store, and what brings one into a state worth finding."""

from __future__ import annotations

import psycopg

from penstock.operate.doctor import Colour, Finding, examine
from penstock.testing.postgres import Server


def findings(url: str, name: str | None = None) -> list[Finding]:
    found = examine(url)
    return [each for each in found if name in {None, each.name}]


def bad(url: str, name: str) -> Finding:
    """The one finding of this name that is not green."""
    [found] = [each for each in findings(url, name) if each.colour is not Colour.GREEN]
    assert found.remedy
    return found


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def restart(server: Server, **settings: str | int) -> None:
    server.stop()
    server.settings |= settings
    server.start()
