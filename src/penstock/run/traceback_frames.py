"""The frames of a stored traceback that are the user's own code, innermost first.

Libraries are known by where they are installed. A traceback without frames of one's own, as when a
library calls itself, has none here: the whole text says the rest.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FRAME = re.compile(r'^[ |+]*File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)$')
_INSTALLED = re.compile(
    r"[\\/](site-packages|dist-packages)[\\/]|[\\/]lib[\\/]python\d|[\\/]Lib[\\/]|^<"
)
_NEXT_EXCEPTION = (
    "The above exception was the direct cause",
    "During handling of the above exception",
)


class Frame(NamedTuple):
    """One call in the user's own code."""

    file: str
    line: int
    name: str
    source: str  # the line, if it is known

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


def own_frames(traceback: str) -> list[Frame]:
    """Of the exception that ended the attempt, the frames in the user's code, innermost first.

    If that one has none, those of the exception that it came from.
    """
    found: list[list[Frame]] = [[]]
    lines = traceback.splitlines()
    for number, line in enumerate(lines):
        if line.strip(" |+").startswith(_NEXT_EXCEPTION):
            found.append([])
            continue
        frame = _FRAME.match(line)
        if frame is None or _INSTALLED.search(frame["file"]):
            continue
        after = lines[number + 1] if number + 1 < len(lines) else ""
        source = "" if _FRAME.match(after) or not after.startswith(" " * 4) else after.strip(" |+")
        found[-1].append(Frame(frame["file"], int(frame["line"]), frame["name"], source))
    return next((frames[::-1] for frames in reversed(found) if frames), found[0])
