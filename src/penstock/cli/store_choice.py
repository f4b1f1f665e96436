"""Which store a command uses, and opening it. A store that does not exist is never created here."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.app.settings import (
    ResolvedUrl,
    anchor,
    mask,
    project_root,
    resolve_app_target,
    resolve_url,
)
from penstock.errors import PenstockError, Refused

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.cli.options import Store
    from penstock.operate.actions import Actions
    from penstock.operate.roles import Person


@contextmanager
def use_store(url: str | None, profile: str | None) -> Generator[None]:
    """Set the environment so that apps made here and in child processes use this store."""
    if url is not None and profile is not None:
        raise Refused("--url and --profile both name the store: give one of them")
    wanted: dict[str, str] = {}
    if url is not None:
        wanted["PENSTOCK_URL"] = anchor(url, project_root())
    if profile is not None:
        wanted["PENSTOCK_PROFILE"] = profile
    before = {name: os.environ.get(name) for name in ("PENSTOCK_URL", "PENSTOCK_PROFILE")}
    if profile is not None:
        os.environ.pop("PENSTOCK_URL", None)  # an option goes before the environment
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
    """The store's URL, and where it comes from."""
    with use_store(url, profile):
        if app is not None:
            return check_app_url(import_app(app), url).resolved_url
        if (app := app_of_settings(url, profile)) is not None:
            resolved = import_app(app).resolved_url
            return resolved._replace(source=f"{resolved.source} of {app}")
        return resolve_url(None)


def app_of_settings(url: str | None, profile: str | None) -> str | None:
    """The app that penstock.toml names, if nothing but that app can say where the store is."""
    if url is not None or profile is not None or not resolve_url(None).is_default:
        return None
    return resolve_app_target()


@contextmanager
def open_store(
    url: str | None, profile: str | None, app: str | None = None, *, create: bool = False
) -> Generator[Broker]:
    """The open store; its URL is printed unless it was given with --url."""
    resolved = store_url(url, profile, app)
    app = app or app_of_settings(url, profile)
    check_not_memory(resolved.url)
    if url is None:
        print_store(resolved)
    loaded = None if app is None else import_app(app)
    broker = opener(resolved, loaded, create=create)()
    if loaded is not None:
        broker.traits.ended = loaded.end_hooks.report
    try:
        yield broker
        if away := broker.traits.missing():
            _print_away(away)
    finally:
        broker.close()
        if loaded is not None:
            loaded.close()  # waits for hooks of jobs that were cancelled here


def _print_away(sentences: Sequence[str]) -> None:
    from penstock.cli.output import print_note

    for sentence in sentences:
        print_note(f"{sentence}; what it has is left out", "yellow")


def opener(
    resolved: ResolvedUrl, app: App | None = None, *, create: bool = False
) -> Callable[[], Broker]:
    """What opens this store, behind the key ring of the app, or of a key file."""
    from penstock.app.encrypted_broker import encrypted
    from penstock.app.key_file import find_keys
    from penstock.brokers import open_broker

    keys = find_keys(resolved) if app is None else app.keys
    return lambda: encrypted(open_broker(resolved.url, create=create), keys)


def check_not_memory(url: str) -> None:
    """Refuse a memory store: it is in another process, or empty."""
    from penstock.brokers.schemes import in_process

    if in_process(url):
        raise Refused(
            "a memory: store exists only inside the process that made it: use sqlite:/// or "
            "postgresql:// to share it"
        )


@contextmanager
def open_actions(store: Store, person: Person) -> Generator[tuple[Broker, Actions]]:
    """The open store, and the actions on it in the name of a person."""
    from penstock.operate.actions import Actions

    with open_store(*store) as broker:
        yield broker, Actions(broker, person)


def import_app(target: str) -> App:
    """The app of a target; if its module raises, the traceback begins at its own line."""
    from penstock.app.locate import load_app

    try:
        return load_app(target)
    except PenstockError:
        raise
    except Exception as error:
        from penstock.cli.output import print_note

        print_note(_traceback(error), "")
        raise Refused(
            f"{target} cannot be imported: see above. Commands that only need the store take --url"
        ) from error


def _traceback(error: Exception) -> str:
    ours = (str(Path(__file__).parents[1]), "<frozen", str(Path(importlib.__file__).parent))
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return "".join(traceback.format_exception(error.with_traceback(frames))).rstrip()


def target_or_default(target: str | None, needs: str) -> str:
    """The target that was given, else that of penstock.toml; refused, naming both ways."""
    found = target or resolve_app_target()
    if found is None:
        raise Refused(
            f'{needs}, or write app = "myapp:app" into penstock.toml, at the top of the file'
        )
    return found


def check_app_url(app: App, url: str | None) -> App:
    """The app; refused if --url names another store than the app's."""
    if url is not None and app.resolved_url.url != anchor(url, project_root()):
        raise Refused(
            f"the app uses {app.describe()}, but --url is {mask(url)}: leave out --url, or "
            "write App() without a URL and let --url or PENSTOCK_URL decide"
        )
    return app


def print_store(resolved: ResolvedUrl) -> None:
    """Print which store is used, as a note."""
    from penstock.cli.output import print_note

    print_note(f"store: {mask(resolved.url)} ({resolved.source})")
