"""The folder of one telling: the environment names it to tasks, which run in other processes."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = "PENSTOCK_DEMO_FOLDER"


def place() -> Path:
    """The folder of the telling that this process is part of."""
    return Path(os.environ[_FOLDER])


@contextmanager
def placed(folder: Path) -> Generator[None]:
    """While this lasts, `place()` is this folder, here and in processes that are started."""
    before = os.environ.get(_FOLDER)
    os.environ[_FOLDER] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FOLDER]
        else:
            os.environ[_FOLDER] = before
