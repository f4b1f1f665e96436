"""Which store a command means, and opening it.

Looking never makes a file: a store that is not there is an error with the way out.
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.app.settings import ResolvedUrl, anchor, mask, project_root, resolve_url
from penstock.errors import PenstockError, Refused

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.cli.options import Store
    from penstock.operate.actions import Actions
    from penstock.operate.roles import Person


@contextmanager
def chosen(url: str | None, profile: str | None) -> Generator[None]:
    """While this lasts, apps made here and in child processes find the store that was asked for."""
    if url is not None and profile is not None:
        raise Refused("--url and --profile both say where the store is: give one of them")
    wanted: dict[str, str] = {}
    if url is not None:
        wanted["PENSTOCK_URL"] = anchor(url, project_root())
    if profile is not None:
        wanted["PENSTOCK_PROFILE"] = profile
    before = {name: os.environ.get(name) for name in ("PENSTOCK_URL", "PENSTOCK_PROFILE")}
    if profile is not None:
        os.environ.pop("PENSTOCK_URL", None)  # what is said here goes before what is set there
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def store_url(url: str | None, profile: str | None, app: str | None) -> ResolvedUrl:
    """Where the store is, and who said so."""
    with chosen(url, profile):
        if app is None:
            return resolve_url(None)
        return checked(load(app), url).resolved_url


@contextmanager
def opened(
    url: str | None, profile: str | None, app: str | None = None, *, create: bool = False
) -> Generator[Broker]:
    """The store, open; said where, unless the person said it."""
    from penstock.brokers import open_broker

    resolved = store_url(url, profile, app)
    if resolved.url.startswith("memory:"):
        raise Refused("a memory: store is inside the process that made it: nobody else can look")
    if url is None:
        say_where(resolved)
    broker = open_broker(resolved.url, create=create)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def acting(store: Store, person: Person) -> Generator[tuple[Broker, Actions]]:
    """The store, to look at and to act on."""
    from penstock.operate.actions import Actions

    with opened(*store) as broker:
        yield broker, Actions(broker, person)


def load(target: str) -> App:
    """The app that a target names; what its module raises is shown from its own line on."""
    from penstock.app.locate import load_app

    try:
        return load_app(target)
    except PenstockError:
        raise
    except Exception as error:
        from penstock.cli.output import aside

        aside(_traceback(error), "")
        raise Refused(f"{target} cannot be imported: see above") from error


def _traceback(error: Exception) -> str:
    ours = (str(Path(__file__).parents[1]), "<frozen", str(Path(importlib.__file__).parent))
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return "".join(traceback.format_exception(error.with_traceback(frames))).rstrip()


def checked(app: App, url: str | None) -> App:
    """The app, if it goes to the store that was asked for."""
    if url is not None and app.resolved_url.url != anchor(url, project_root()):
        raise Refused(
            f"the app goes to {app.describe()}, and --url says {mask(url)}: leave out --url, or "
            "write App() without a URL and let --url or PENSTOCK_URL decide"
        )
    return app


def say_where(resolved: ResolvedUrl) -> None:
    """The store's path, in passing."""
    from penstock.cli.output import aside

    aside(f"store: {mask(resolved.url)} ({resolved.source})")
