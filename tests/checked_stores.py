"""After each story, and each test of trust, the history of every store that it used is checked.

A store is found by the test's fixtures: a broker, an app, a URL, a server with databases, or a file
in the test's folder. A test that opens one elsewhere checks it itself, and so does a `Story`, once
its workers are gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.testing.checker import Verdict, check_store
from penstock.testing.postgres import Server

TOLERANCE = 0.05  # seconds by which the clocks of two processes of a machine may differ
_PASSED = pytest.StashKey[bool]()
_FIXTURES = pytest.StashKey[dict[str, Any]]()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Also of those that other fixtures ask for."""
    value: Any = yield
    if request.scope == "function":
        request.node.stash.setdefault(_FIXTURES, {})[fixturedef.argname] = value
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Looks before the fixtures are torn down, and the stores with them."""
    faults: list[str] = []
    if item.stash.get(_PASSED, False):
        found = verdicts(item.stash.get(_FIXTURES, {}))
        faults = [f"{name}: {verdict}" for name, verdict in found if not verdict.ok]
    yield
    assert not faults, "\n".join(faults)


def verdicts(fixtures: dict[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Of each store that fixtures lead to, with its name.

    Left out is one that is away, or refuses: a shard, which is read by whoever has the map.
    """
    if any(getattr(value, "checks_its_store", False) for value in fixtures.values()):
        return
    urls: set[str] = set()
    for name, value in fixtures.items():
        for each in value if isinstance(value, tuple) else (value,):
            made = each.broker if isinstance(each, App) else each
            if hasattr(made, "history") and hasattr(made, "workers"):
                with suppress(PenstockError):
                    yield name, check_store(made, tolerance=TOLERANCE)
            elif isinstance(each, Server):
                urls.update(databases_of(each))
            elif isinstance(each, Path) and each.is_dir():
                urls.update(f"sqlite:///{file}" for file in each.rglob("*.db"))
            elif isinstance(each, str) and "://" in each:
                urls.add(each)
    for url in sorted(url for url in urls if is_store(url)):
        with suppress(PenstockError), closing(open_broker(url)) as broker:
            yield url, check_store(broker, tolerance=TOLERANCE)


def databases_of(server: Server) -> list[str]:
    if not server.running:
        return []
    with psycopg.connect(server.url(), connect_timeout=10) as connection:
        names = connection.execute("select datname from pg_database where datallowconn").fetchall()
    return [server.url(name) for (name,) in names]


def is_store(url: str) -> bool:
    """Whether there is a store: opening it would make one."""
    if url.startswith("sqlite:///"):
        file = f"file:{url.removeprefix('sqlite:///')}?mode=rw"
        tables = "select 1 from sqlite_master where name = 'penstock_history'"
        with suppress(sqlite3.Error), closing(sqlite3.connect(file, uri=True)) as store:
            return store.execute(tables).fetchone() is not None
    if url.startswith("postgresql://"):
        with suppress(psycopg.Error), psycopg.connect(url, connect_timeout=10) as connection:
            return connection.execute("select to_regclass('penstock.meta')").fetchone() != (None,)
    return url.startswith(("redis://", "valkey://"))
