"""Logins of a test's own on a PostgreSQL server."""

from __future__ import annotations

import re
import secrets

import psycopg
from psycopg import sql

from penstock.brokers import roles_sql


class Logins:
    """Logins of the test's own on a server, and a store that the server's user owns."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.made: list[str] = []

    def login(self) -> str:
        name = f"penstock_test_{secrets.token_hex(6)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("create role {} login password {}").format(
                    sql.Identifier(name), sql.Literal(name)
                )
            )
        self.made.append(name)
        return name

    def url_of(self, name: str) -> str:
        return re.sub(r"//([^@/]*@)?", f"//{name}:{name}@", self.url, count=1)

    def grant(self, workers: list[str], admins: list[str]) -> None:
        self.grant_roles(worker=workers, admin=admins)

    def grant_roles(self, url: str = "", **members: list[str]) -> None:
        """As the owner of the store, or whose URL is given."""
        script = roles_sql(self.url, members).replace("\\set ON_ERROR_STOP on", "")
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            connection.execute(script.encode())

    def close(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for name in self.made:
                connection.execute(
                    sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name))
                )
