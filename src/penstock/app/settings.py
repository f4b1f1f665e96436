"""Which store is meant: the argument, PENSTOCK_URL, penstock.toml, or a file beside the project.

    # penstock.toml
    app = "shop.jobs:app"            # what commands take as TARGET or --app if they are given none
    app_name = "shop"                # or PENSTOCK_APP_NAME: which program this is, see App.name

    [profiles.default]
    url = "sqlite:///jobs.db"

    [profiles.production]            # chosen by PENSTOCK_PROFILE=production
    url = "sqlite:////var/lib/shop/jobs.db"
    key_file = "/run/secrets/shop.key"   # or PENSTOCK_KEY_FILE: see app.key_file

    [dashboard.oidc]                 # where people log in: see web.oidc_settings

    [alerts]                         # what `penstock dashboard` watches: see operate.alerts

Paths are anchored at the project of the file that makes the App, never at the directory that a
process happens to run in: a worker and a web server started from two places meet in one file.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from penstock.app.private_files import is_credible
from penstock.errors import Refused

SETTINGS_FILE = "penstock.toml"
_KNOWN = ("app", "app_name", "profiles", "alerts", "dashboard", "shards")  # at its top
_ROOT_MARKS = (SETTINGS_FILE, "pyproject.toml", "setup.py", ".git")
_SECRET = re.compile(r"pass|pwd|secret|key|token", re.IGNORECASE)
# A value goes on over an & that no other name follows: somebody may have left one unquoted.
_FIELD = re.compile(r"(?P<name>(?<=[?&])[^=&?]*)=(?P<value>[^&]*(?:&(?![^=&]*=)[^&]*)*)")
_PORT = re.compile(r"\d*(?:[,/?#]|$)")


class ResolvedUrl(NamedTuple):
    """Where the store is, and who said so; of a profile also where its keys are."""

    url: str
    source: str
    key_file: Path | None = None
    is_default: bool = False  # nobody said where
    profile: str = ""  # that was chosen, and names it


def resolve_url(
    url: str | None, beside: Path | None = None, profile: str | None = None
) -> ResolvedUrl:
    """The store's URL, and where it came from. `beside` is the file that makes the App.

    A `profile` that is asked for goes before what the environment says.
    """
    root = project_root(beside)
    if url is not None:
        return ResolvedUrl(anchor(url, root), "App(url)")
    from_environment = os.environ.get("PENSTOCK_URL")
    if from_environment and profile is None:
        return ResolvedUrl(anchor(from_environment, root), "PENSTOCK_URL")
    profile_name = profile or os.environ.get("PENSTOCK_PROFILE")
    file = _settings_file(beside)
    if file is not None and (from_file := _profile(file, profile_name)) is not None:
        return from_file
    if profile_name is not None and file is None:
        raise Refused(
            f"profile {profile_name}: there is no {SETTINGS_FILE} at or above {root};"
            " PENSTOCK_SETTINGS=FILE names one elsewhere"
        )
    url = anchor("sqlite:///penstock.db", root)
    return ResolvedUrl(url, f"the default in {root}", is_default=True)


def resolve_app_name(beside: Path | None = None) -> tuple[str, str]:
    """The name of the program, "" if nobody gave it one, and where it came from."""
    if name := os.environ.get("PENSTOCK_APP_NAME"):
        return name, "PENSTOCK_APP_NAME"
    file = _settings_file(beside)
    if file is None:
        return "", "the default"
    name = _settings(file).get("app_name", "")
    if not isinstance(name, str):
        raise Refused(f'{file}: app_name = {name!r}: a text, as app_name = "shop"')
    return name, f"app_name of {file}"


def resolve_app_target() -> str | None:
    """The app that penstock.toml names, for commands that need one and were given none."""
    file = _settings_file(None)
    target = None if file is None else _settings(file).get("app")
    if target is None or (isinstance(target, str) and target.strip()):
        return target
    raise Refused(f'{file}: app = {target!r}: a target, as app = "shop.jobs:app"')


def alert_settings() -> tuple[dict[str, Any], Path | None]:
    """The table [alerts] of penstock.toml as it is written, and the file; empty without one."""
    file = _settings_file(None)
    table: Any = {} if file is None else _settings(file).get("alerts", {})
    if not isinstance(table, dict):
        raise Refused(f'{file}: alerts is a table: [alerts.late] and wait = "5m" below it')
    return cast("dict[str, Any]", table), file


def dashboard_settings() -> tuple[dict[str, Any], Path | None]:
    """The table [dashboard] of penstock.toml, and the file: how people log in."""
    file = _settings_file(None)
    table: Any = {} if file is None else _settings(file).get("dashboard", {})
    if not isinstance(table, dict) or not set(cast("dict[str, Any]", table)) <= {"oidc"}:
        raise Refused(f"{file}: dashboard is a table with one entry: [dashboard.oidc]")
    return cast("dict[str, Any]", table), file


def project_root(beside: Path | None = None) -> Path:
    """The directory of the project that a file belongs to."""
    start = _start(beside)
    mark = _upward(start, _ROOT_MARKS)
    if mark is not None:
        return mark.parent
    # Out of the package that the file is part of: that is where one stands to run it.
    while (start / "__init__.py").exists() and start != start.parent:
        start = start.parent
    return start


def anchor(url: str, root: Path) -> str:
    """The URL with a relative path of a file made absolute."""
    from penstock.brokers.schemes import names_file

    if not names_file(url):
        return url
    scheme, slashes, rest = url.partition(":///")
    path, mark, query = rest.partition("?")
    if not path:
        raise Refused(f"{mask(url)!r} names no file: write {scheme}:///penstock.db")
    return f"{scheme}{slashes}{(root / path).absolute()}{mark}{query}"


def mask(url: str) -> str:
    """The URL as it may be shown: without what may be a secret, also where it is malformed.

    Rather too little is shown than too much: an unquoted @, /, ? or # belongs to the password.
    """
    from penstock.brokers.schemes import names_file

    scheme, mark, rest = url.partition("://")
    if not mark:
        if re.search(rf"(?:{_SECRET.pattern})\w*\s*=", url, re.IGNORECASE):
            return "***"
        scheme, rest = "", url
    if not names_file(url):
        rest = _without_password(rest)
    return scheme + mark + _FIELD.sub(_shown, rest)


def _without_password(rest: str) -> str:
    user, colon, behind = rest.partition(":")
    if not colon:
        return rest
    _, at, host = behind.rpartition("@")
    if at:
        return f"{user}:***@{host}"
    if "@" in user or user.startswith("[") or "/" in user or _PORT.match(behind):
        return rest  # of the address
    return f"{user}:***"


def _shown(field: re.Match[str]) -> str:
    secret = _SECRET.search(unquote(field["name"]))
    return f"{field['name']}={'***' if secret else field['value']}"


def calling_file() -> Path | None:
    """The file of the first caller outside of this package; None at a prompt."""
    here = str(Path(__file__).parents[1]) + os.sep
    frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  the only way to know who calls
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(here):
            return Path(file).absolute() if Path(file).is_file() else None
        frame = frame.f_back
    return None


def _start(beside: Path | None) -> Path:
    # Without a file there is only the working directory: an interactive session.
    return Path.cwd() if beside is None else beside.absolute().parent


def _settings_file(beside: Path | None) -> Path | None:
    """That of PENSTOCK_SETTINGS, for processes that run anywhere; else beside the project."""
    if named := os.environ.get("PENSTOCK_SETTINGS"):
        file = Path(named).absolute()
        if not file.is_file() or not is_credible(file):
            raise Refused(
                f"PENSTOCK_SETTINGS={named}: there is no such file, or others may change it"
            )
        return file
    return _upward(_start(beside), (SETTINGS_FILE,))


def _upward(start: Path, names: tuple[str, ...]) -> Path | None:
    for folder in (start, *start.parents):
        for name in names:
            if (folder / name).exists() and is_credible(folder / name):
                return folder / name
    return None


def _settings(file: Path) -> dict[str, Any]:
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    for name in settings:
        if name not in _KNOWN:
            raise Refused(f"{file}: {name!r} is not known; there are {', '.join(_KNOWN)}")
    return settings


def _profile(file: Path, chosen: str | None) -> ResolvedUrl | None:
    profiles: Any = _settings(file).get("profiles", {})
    profiles = cast("dict[str, Any]", profiles if isinstance(profiles, dict) else {})
    name = chosen or "default"
    if name not in profiles:
        if chosen is None:
            return None
        known = ", ".join(sorted(profiles)) or "none"
        raise Refused(f"{file} has no profile {chosen!r}; there is: {known}")
    profile: Any = profiles[name]
    profile = cast("dict[str, Any]", profile if isinstance(profile, dict) else {})
    url, key_file = profile.get("url"), profile.get("key_file")
    if not isinstance(url, str):
        raise Refused(f'{file}: profile {name} has no url; write url = "sqlite:///penstock.db"')
    if key_file is not None and not isinstance(key_file, str):
        raise Refused(f'{file}: profile {name}: key_file is the path of a file, as "shop.key"')
    source = f"profile {name} of {file}"
    keys = None if key_file is None else file.parent / key_file
    return ResolvedUrl(anchor(url, file.parent), source, keys, profile=chosen or "")
