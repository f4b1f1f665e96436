"""Declared secrets, kept out of what outlives the job.

A body names its secret arguments itself (its `secret` list), so that every store can hide them
without knowing the task.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

HIDDEN = "***"


def redact(body: bytes) -> bytes:
    """The body with its secret arguments hidden; unchanged where none is declared."""
    # The common body declares none, and need not be decoded to be sure of it.
    if b'"secret"' not in body:
        return body
    try:
        decoded: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body
    if not isinstance(decoded, dict):
        return body
    whole = cast("dict[str, Any]", decoded)
    secret, arguments = whole.get("secret"), whole.get("args")
    if not isinstance(secret, list) or not isinstance(arguments, dict):
        return body
    for name in cast("list[Any]", secret):
        if isinstance(name, str) and name in arguments:
            arguments[name] = HIDDEN
    return msgspec.json.encode(whole)
