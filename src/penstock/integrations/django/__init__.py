"""Django: jobs in the project's own database, committed and rolled back with `atomic()`.

    INSTALLED_APPS = [..., "penstock.integrations.django"]

    # shop/tasks.py, found by itself in every installed app
    from penstock.integrations.django import app

    @app.task
    def confirm(order: int) -> None: ...

`manage.py penstock_worker` runs the jobs. The store is read from Django's settings when it is first
needed, never at import time: PENSTOCK = {"URL": ...} or {"DATABASE": alias}. "KEYS" (a key ring, or
keys) or "KEY_FILE" in it encrypts what is stored.
"""

# Django brings no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections, connections

from penstock.app.app import App
from penstock.app.key_file import chosen_keys
from penstock.app.key_ring import KeyRing
from penstock.app.settings import ResolvedUrl
from penstock.errors import Refused
from penstock.job import Job

_connections: Any = connections


class DjangoApp(App):
    """An App in Django's database.

    Inside `atomic()` on that database an enqueue joins the transaction by itself. Old and broken
    connections of Django are closed before and after each task, as around a request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.middleware(_with_fresh_connections)
        self.middleware(_with_fresh_connections_async)

    @property
    def resolved_url(self) -> ResolvedUrl:
        if url := _setting("URL"):
            return ResolvedUrl(url, 'PENSTOCK["URL"] of the settings')
        if url := os.environ.get("PENSTOCK_URL"):
            return ResolvedUrl(url, "PENSTOCK_URL")
        alias = _setting("DATABASE") or "default"
        return ResolvedUrl(url_of(alias), f"the database {alias} of the settings")

    def configured_keys(self) -> KeyRing | None:
        named = _setting("KEYS"), _setting("KEY_FILE")
        return chosen_keys(*named, "in PENSTOCK of the settings") or super().configured_keys()

    @property
    def alias(self) -> str | None:
        """Django's alias of the store's database; None if the store is elsewhere."""
        if _setting("URL") or os.environ.get("PENSTOCK_URL"):
            return None
        return _setting("DATABASE") or "default"

    def connection_for(self, given: Any) -> Any:
        # A broker that was passed in (by a test) is in none of Django's databases.
        if given is None and self._given is None and (alias := self.alias) is not None:
            wrapper = _connections[alias]
            return wrapper if wrapper.in_atomic_block else None
        return given


def url_of(alias: str = "default") -> str:
    """The store's URL in one of Django's databases."""
    wrapper = _connections[alias]
    database: dict[str, Any] = wrapper.settings_dict
    name = str(database["NAME"] or "")
    if wrapper.vendor == "sqlite":
        if is_in_memory(alias):
            raise Refused(
                f"the database {alias} is in memory, where no worker can read it; "
                "in tests use `with app.testing() as t:`"
            )
        return f"sqlite:///{quote(str(Path(name).absolute()))}"
    if wrapper.vendor != "postgresql":
        raise Refused(
            f'the database {alias} is {wrapper.vendor}; set PENSTOCK = {{"URL": ...}} to a store '
            "on PostgreSQL or SQLite"
        )
    from psycopg.pq import Conninfo

    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    options = {key: value for key, value in database["OPTIONS"].items() if key in known}
    for key, value in (
        ("host", "HOST"),
        ("port", "PORT"),
        ("user", "USER"),
        ("password", "PASSWORD"),
    ):
        if database[value]:
            options[key] = database[value]
    # All as query parameters: in the authority, paths and colons would need further escaping.
    return f"postgresql:///{quote(name, safe='')}?{urlencode(options, quote_via=quote)}"


def is_in_memory(alias: str) -> bool:
    """Whether the database is in this process's memory, as in most tests on SQLite."""
    wrapper = _connections[alias]
    name = str(wrapper.settings_dict["NAME"])
    return wrapper.vendor == "sqlite" and (name == ":memory:" or "mode=memory" in name)


def _setting(name: str) -> Any:
    chosen = cast("dict[str, Any]", getattr(settings, "PENSTOCK", {}))
    if unknown := chosen.keys() - {"URL", "DATABASE", "KEYS", "KEY_FILE"}:
        raise Refused(
            f"unknown key {min(unknown)!r} in PENSTOCK of Django's settings: use URL or DATABASE, "
            "KEYS or KEY_FILE"
        )
    return chosen.get(name)


def _with_fresh_connections(call_next: Callable[[], Any], job: Job[Any]) -> Any:
    del job
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def _with_fresh_connections_async(call_next: Callable[[], Any], job: Job[Any]) -> Any:
    del job
    # Django keeps the connections of async code in one thread, reached by sync_to_async.
    await sync_to_async(_close_old)()
    try:
        return await call_next()
    finally:
        await sync_to_async(_close_old)()


def _close_old() -> None:
    close_old_connections()


app = DjangoApp()
