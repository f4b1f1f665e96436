"""Workers: processes that claim jobs and run them.

The two names are loaded when they are first used: a process that only runs jobs needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.worker.loop import Worker
    from penstock.worker.supervisor import Supervisor

__all__ = ["Supervisor", "Worker"]

_MODULES = {"Supervisor": "penstock.worker.supervisor", "Worker": "penstock.worker.loop"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
