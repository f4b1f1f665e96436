"""The folder of one demo: an environment variable names it to the worker processes."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = "PENSTOCK_DEMO_FOLDER"


def demo_folder() -> Path:
    """The folder of the demo that this process is part of."""
    return Path(os.environ[_FOLDER])


@contextmanager
def using_folder(folder: Path) -> Generator[None]:
    """Meanwhile `demo_folder()` is this folder, here and in processes that are started."""
    before = os.environ.get(_FOLDER)
    os.environ[_FOLDER] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FOLDER]
        else:
            os.environ[_FOLDER] = before
