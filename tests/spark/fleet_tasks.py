"""Tasks for fleets; where the store is comes from the environment."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from penstock import App

app = App()
SUPERVISOR = os.getppid()  # as this process began: an orphan has another parent


@app.task(name="nap")
def nap(number: int, seconds: float = 0.02) -> int:
    threading.Event().wait(seconds)  # as a service that answers slowly
    return number


@app.task(name="where")
def where(folder: str) -> str:
    """Says which supervisor it runs under, and where its Penstock came from."""
    import penstock

    Path(folder, str(SUPERVISOR)).touch()
    return penstock.__file__
