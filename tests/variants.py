"""Which variants of a test are made: not those that `-m` leaves out.

`make test` runs 18,000 tests. Those of `make test-stores` alone are as many again, and each test
process would make all of them before it leaves them out.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None]:
    """After every other plugin: stores are parameters of fixtures or of tests."""
    yield
    if not leaves_out_other_stores(metafunc.config.option.markexpr):
        return
    made: Any = metafunc  # pytest has no other place in which they can be seen
    kept = [one for one in made._calls if not any(mark.name == "soak" for mark in one.marks)]
    if kept:  # without any pytest would make one test without parameters; `-m` leaves these out
        made._calls = kept


def leaves_out_other_stores(expression: str) -> bool:
    """Whether `-m` leaves out what is marked soak, also where it is marked every_store."""
    words = expression.replace("(", " ").replace(")", " ").split()
    return "every_store" not in words and ("not", "soak") in pairwise(words)
