"""The log of a detached job, kept to a size: its beginning, its end, and a word on what went.

Its processes write to the file themselves, so it is cut in place, under their hands; they append,
and go on behind what is left. What is printed in the moment of the cut may be lost. Only the
keeper cuts: of a job that nobody keeps nothing is printed.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from penstock.app.private_files import open_own
from penstock.errors import Refused

MOST_BYTES = 16 << 20
_KEPT_BYTES = 4 << 20  # at either end
_PAGE = 1 << 16
_SAID = re.compile(rb"\n\[(\d+) bytes were left out here, of a log that is kept to [^\]]*\]\n")


def cut_to_size(path: Path, most: int = MOST_BYTES, kept: int = _KEPT_BYTES) -> bool:
    """Leave out the middle of a log that is larger than `most`; whether that was so."""
    with suppress(OSError, Refused):
        if path.lstat().st_size > most:
            file = open_own(path, os.O_RDWR)
            try:
                _cut(file, most, kept)
            finally:
                os.close(file)
            return True
    return False


def _cut(file: int, most: int, kept: int) -> None:
    size = os.fstat(file).st_size
    start = size - kept
    before = _SAID.match(os.pread(file, 200, kept))  # of the last time
    gone = start - kept
    if before is not None:
        gone += int(before[1]) - len(before[0])
    said = (
        f"\n[{gone} bytes were left out here, of a log that is kept to {most} bytes]\n"
    ).encode()
    os.pwrite(file, said, kept)
    place = kept + len(said)
    # Until there is nothing more: its processes go on writing meanwhile.
    while part := os.pread(file, _PAGE, start):
        os.pwrite(file, part, place)
        place += len(part)
        start += len(part)
    os.ftruncate(file, place)
