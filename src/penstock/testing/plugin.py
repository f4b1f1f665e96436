"""The pytest plugin: one fixture, for those who ask for it.

pytest imports this in every project that has Penstock installed: it must stay cheap, and must
change nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.testing.kit import Testing


@pytest.fixture
def penstock_testing() -> Iterator[Callable[..., Testing]]:
    """Puts an app under test until the end of the test: `t = testing(app)`, as `app.testing()`."""
    with ExitStack() as stack:

        def testing(app: App, **options: Any) -> Testing:
            return stack.enter_context(app.testing(**options))

        yield testing
