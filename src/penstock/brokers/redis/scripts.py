"""The Lua scripts: each the text of a file in lua/ behind the prelude that all share.

They are called by the hash of their text, so that two releases side by side never run each other's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "lua"
_PRELUDE = "_prelude"


class Script:
    """One script; `writes` is False for those that only read, and may be sent twice."""

    def __init__(self, name: str, *, writes: bool = True) -> None:
        self.name = name
        self.writes = writes
        self.text = _text(_PRELUDE) + _text(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def call(
        self, prefix: str, arguments: Sequence[bytes | str | int | float]
    ) -> tuple[object, ...]:
        """The command that runs it where the server knows it."""
        return "EVALSHA", self.sha, 1, prefix, *arguments

    def text_call(
        self, prefix: str, arguments: Sequence[bytes | str | int | float]
    ) -> tuple[object, ...]:
        """The command that runs it anywhere, and makes it known."""
        return "EVAL", self.text, 1, prefix, *arguments


@cache
def _text(name: str) -> str:
    path = _FOLDER / f"{name}.lua"
    return path.read_text(encoding="utf-8") if path.exists() or name != _PRELUDE else ""
