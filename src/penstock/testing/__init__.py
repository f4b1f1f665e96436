"""The testing kit: tests of tasks without a worker, without a store and without waiting.

`with app.testing() as t:` is the way in. Names are found when they are asked for: pytest imports
this package in every project that has Penstock installed, and most of their tests do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.clock import Clock
    from penstock.testing.kit import Testing
    from penstock.testing.stand_in import Ran

__all__ = ["Clock", "Ran", "Testing"]


def __getattr__(name: str) -> Any:
    if name == "Clock":
        from penstock.testing.clock import Clock

        return Clock
    if name == "Testing":
        from penstock.testing.kit import Testing

        return Testing
    if name == "Ran":
        from penstock.testing.stand_in import Ran

        return Ran
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
