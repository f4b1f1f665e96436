"""The testing kit: tests of tasks without a worker, without a store and without waiting.

`with app.testing() as t:` is the way in. Names are imported on first use: pytest imports
this package in every project that has Penstock installed, and most of their tests do not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.clock import Clock
    from penstock.testing.inline_worker import Ran
    from penstock.testing.kit import Testing

__all__ = ["Clock", "Ran", "Testing"]


_MODULES = {"Clock": "clock", "Ran": "inline_worker", "Testing": "kit"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"penstock.testing.{_MODULES[name]}"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
