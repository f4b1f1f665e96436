"""Key files: where a program finds its key ring if its code does not name one.

    PENSTOCK_KEY_FILE=/run/secrets/penstock.key     # or, of a profile in penstock.toml, key_file

One key per line, the one that encrypts first; `#` begins a comment. Only the path is ever in an
environment, a settings file or on a command line, where others may read it: never a key.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.app.key_ring import KeyRing
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.app.settings import ResolvedUrl

VARIABLE = "PENSTOCK_KEY_FILE"
NO_KEYS = (
    "there is no key for it here: set PENSTOCK_KEY_FILE, or key_file of the profile in "
    "penstock.toml, or name the app that has the key ring (--app)"
)
SEALED_HERE = f"arguments are encrypted, and shown as they are stored: {NO_KEYS}"
_OTHERS = 0o027  # its group may read it, as mounted secrets need
_MOST_BYTES = 65_536


def find_keys(resolved: ResolvedUrl | None = None) -> KeyRing | None:
    """The key ring for this store: of PENSTOCK_KEY_FILE, else of the store's profile; or None."""
    if path := os.environ.get(VARIABLE):
        return read_key_file(Path(path), VARIABLE)
    if resolved is None or resolved.key_file is None:
        return None
    return read_key_file(resolved.key_file, f"key_file, {resolved.source}")


def chosen_keys(keys: Any, key_file: Any, source: str) -> KeyRing | None:
    """The key ring that a framework's settings name, by keys or by a file; `source` names them."""
    if keys is not None and key_file is not None:
        raise Refused(f"keys and a key file {source}: give one of them")
    if key_file is not None:
        return read_key_file(Path(key_file), f"the key file {source}")
    if keys is None or isinstance(keys, KeyRing):
        return keys
    return KeyRing(*([keys] if isinstance(keys, str | bytes) else keys))


def read_key_file(path: Path, source: str) -> KeyRing:
    """The key ring in a file; `source` says who named it. Refused if others may read it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"the key file {path} ({source}) cannot be read: {error.strerror}") from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise Refused(f"the key file {path} ({source}) is no regular file")
    with os.fdopen(file, "rb") as opened:
        if status.st_mode & _OTHERS:
            raise Refused(
                f"the key file {path} ({source}) is open to other users: chmod 600 it, or 440 where"
                " a group has to read it"
            )
        if status.st_uid not in {0, os.geteuid()}:
            raise Refused(
                f"the key file {path} ({source}) belongs to the user {status.st_uid}, who could"
                " read what it encrypts: make it your own, or root's"
            )
        text = opened.read(_MOST_BYTES)
    try:
        lines = [line.partition("#")[0].strip() for line in text.decode().splitlines()]
        return KeyRing(*filter(None, lines))
    except (Refused, UnicodeDecodeError):
        raise Refused(
            f"the key file {path} ({source}): one key per line, each made by KeyRing.new_key(); "
            "the first encrypts"
        ) from None
