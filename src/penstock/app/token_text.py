"""The text of a token: how it is hashed, how strong it must be, and the file that it is in.

Shared by the dashboard and the manager. Only hashes are kept in memory.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from pathlib import Path

from penstock.app.private_files import open_regular
from penstock.errors import Refused

SHORTEST_TOKEN = 32
_LEAST_BITS = 90.0
HASHED = "sha256="


def hash_token(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def hash_in(secret: str, name: str, where: str) -> bytes:
    """The hash of a token as an entry has it: its text, or `sha256=` and the hash."""
    if secret.startswith(HASHED):
        try:
            hashed = bytes.fromhex(secret.removeprefix(HASHED))
        except ValueError:
            hashed = b""
        if len(hashed) != 32:
            raise Refused(f"{where}: {name}: sha256= is followed by 64 hexadecimal digits")
        return hashed
    check_strength(secret, f"{where}: the token of {name}")
    return hash_token(secret)


def check_strength(token: str, what: str) -> None:
    """Refuse a token that could be guessed: one that is short, or in which little changes.

    A sentence of words passes, and so does the hash of a weak token: nobody can tell those from
    strong ones.
    """
    counts = Counter(token)
    each = -sum(n / len(token) * math.log2(n / len(token)) for n in counts.values())
    # A text that was written several times is as strong as once.
    period = (token + token).find(token, 1)
    if len(token) < SHORTEST_TOKEN or each * period < _LEAST_BITS:
        raise Refused(
            f"{what} is weak: take {SHORTEST_TOKEN} random characters or more, as `openssl rand "
            "-hex 32` prints"
        )


def read_token_file(file: Path, *, follow: bool = True) -> str:
    """The text of a file of tokens; refused if others can read it or own it.

    `follow`: allow a symbolic link, for a file that the operator named.
    """
    try:
        named: int | Path = file if follow else open_regular(file, os.O_RDONLY, single=True)
        with open(named, encoding="utf-8") as opened:  # noqa: PTH123  it may be a descriptor
            # Of the open file: the name may lead to another one by now.
            check_private(file, os.fstat(opened.fileno()), os.geteuid())
            return opened.read()
    except UnicodeDecodeError as error:
        raise Refused(f"{file} cannot be read: {error}") from error
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror or error}") from error


def check_private(file: Path, status: os.stat_result, user: int) -> None:
    """Refuse a file that others can read, or that another user owns."""
    if status.st_mode & 0o077:
        raise Refused(f"{file} can be read by others: chmod 600 {file}")
    if status.st_uid not in {user, 0}:
        raise Refused(
            f"{file} belongs to the user {status.st_uid}, who could let anybody in: remove it, or "
            "name a file of your own with --token-file"
        )
