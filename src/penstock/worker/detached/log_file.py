"""Keeps the log of a detached job to a size: its beginning, its end, and a line between them.

Its processes write to the file themselves, so it is cut in place; they append, and go on at the new
end. What is printed at the moment of the cut may be lost. Only the keeper cuts.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from penstock.app.private_files import open_own
from penstock.errors import Refused

MOST_BYTES = 16 << 20
_KEPT_BYTES = 4 << 20  # at each end
_PAGE = 1 << 16
_CUT_LINE = re.compile(rb"\n\[(\d+) bytes were left out here, of a log that is kept to [^\]]*\]\n")


def cut_to_size(path: Path, most: int = MOST_BYTES, kept: int = _KEPT_BYTES) -> bool:
    """Remove the middle of a log that is larger than `most`; whether it was."""
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
    before = _CUT_LINE.match(os.pread(file, 200, kept))  # the line of an earlier cut
    removed = start - kept
    if before is not None:
        removed += int(before[1]) - len(before[0])
    cut_line = f"\n[{removed} bytes were left out here, of a log that is kept to {most} bytes]\n"
    os.pwrite(file, cut_line.encode(), kept)
    end = kept + len(cut_line)
    # Until nothing more is there: the job's processes write meanwhile.
    while part := os.pread(file, _PAGE, start):
        os.pwrite(file, part, end)
        end += len(part)
        start += len(part)
    os.ftruncate(file, end)
