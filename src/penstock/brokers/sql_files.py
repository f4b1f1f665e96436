"""SQL files: one for each verb, in it a section `-- name: ...` for each statement.

A subclass declares the names, so that a misspelt one fails the type checker. What is declared and
what the files hold is the same, or the import fails.
"""

from __future__ import annotations

import re
from inspect import get_annotations
from pathlib import Path

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class SqlFiles:
    """The statements in a folder's files as attributes; one without sections is one statement."""

    def __init__(self, folder: Path) -> None:
        found = _statements(folder)
        declared = {name for kind in type(self).__mro__ for name in get_annotations(kind)}
        if declared != found.keys():
            message = (
                f"the statements in {folder} are not those that {type(self).__name__} declares: "
                f"{', '.join(sorted(declared ^ found.keys()))}"
            )
            raise TypeError(message)
        vars(self).update(found)


def _statements(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.sql")):
        head, *sections = _NAME.split(path.read_text(encoding="utf-8"))
        here = zip(sections[::2], sections[1::2], strict=True) if sections else [(path.stem, head)]
        for name, text in here:
            if name in found:
                message = f"there are two statements {name} in {folder}; one is in {path.name}"
                raise TypeError(message)
            found[name] = text.strip() + "\n"
    return found
