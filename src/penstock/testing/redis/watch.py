"""The watcher: ends a server and removes its folder when its owner has ended, however that was.

It waits for the end of its input, a pipe that the owner holds. It is run as a file, by itself, so
it starts in a blink: nothing but the standard library may be imported here.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main(folder: Path) -> None:
    sys.stdin.buffer.read()
    with suppress(OSError, ValueError):
        pid = int((folder / "pid").read_text(encoding="utf-8"))
        if str(folder).encode() in (Path("/proc") / str(pid) / "cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
