"""Which tests are quick: those that need no server, no Spark, no browser and no other process.

That is the pure modules, and what a broker is, on the stores in memory and in SQLite.
`make test-quick` runs these.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SUITE = HERE.parent / "src" / "penstock" / "testing" / "conformance"
FOLDERS = ("brokers", "compose", "flows", "testing")
# Each of these starts processes, and takes longer than hundreds of others.
NOT_THESE = ("test_benchmarks.py", "test_detached.py", "test_plugin.py", "test_crashes.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_quick(item):
        item.add_marker("quick")


@cache  # many tests are in one file
def _place(path: Path) -> tuple[str, ...]:
    """The folders and the name of a file, as far as its tests may be quick."""
    if path.is_relative_to(SUITE):
        return "brokers", path.name
    return path.relative_to(HERE).parts if path.is_relative_to(HERE) else ()


def is_quick(item: pytest.Item) -> bool:
    place = _place(item.path)
    if not place:
        return False
    *folders, name = place
    if (folders and folders[0] not in FOLDERS) or name in NOT_THESE:
        return False
    needed = [*folders, name, *getattr(item, "fixturenames", ()), item.nodeid.rpartition("::")[2]]
    return not any("postgres" in word or "redis" in word for word in needed)
