"""Databases on a server that runs: made under a name of their own, dropped with whoever is in it.

A server is named by a URL here, so that one which Penstock did not start serves as well.
"""

from __future__ import annotations

import re
import secrets
from typing import LiteralString

from penstock.app.settings import mask
from penstock.errors import Refused

_URL = re.compile(r"(?P<server>postgres(?:ql)?://[^/?]*)(?:/[^?]*)?(?P<options>\?.*)?")


def with_database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    if (found := _URL.fullmatch(url)) is None:
        raise Refused(f"{mask(url)!r}: a PostgreSQL server is named postgresql://user@host:port/")
    return f"{found['server']}/{name}{found['options'] or ''}"


def create_database(url: str) -> str:
    """Makes an empty database on the server of `url`; its URL. The user must be allowed to."""
    name = f"penstock_{secrets.token_hex(8)}"
    made = with_database(url, name)
    _on_server(url, "create database {}", name)
    return made


def drop_database(url: str, made: str) -> None:
    """Drops what `create_database(url)` made, whoever is still connected to it."""
    found = re.match(r"[^/]*//[^/?]*/([^?]*)", made)
    if found is None or not re.fullmatch(r"penstock_[0-9a-f]{16}", found[1]):
        raise Refused(f"{mask(made)!r} was not made by create_database, and is not dropped")
    _on_server(url, "drop database if exists {} with (force)", found[1])


def _on_server(url: str, command: LiteralString, name: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(command).format(sql.Identifier(name)))
