"""The pytest plugin of the conformance suite.

Whoever runs the suite defines, in a plugin of their own (`pytest -p my_store_suite`):

    broker         a fixture: an empty store, open, on the clock of the fixture `clock`
    reopen         a fixture, if the store outlives its process: a callable that opens the store of
                   `broker` once more
    fresh_broker   a fixture, for `models` alone: a callable that opens a new, empty store each time
                   it is called with a folder of its own and a clock

Some tests need what not every store can. These are left out, and counted by name in the report,
unless the plugin says that the store can, in a hook:

    def pytest_penstock_capabilities():
        return {"begins", "reopens", "order across buckets"}

The names are those of `penstock.broker.traits.Capability`, as the store declares them in its
traits (`core/test_traits.py` fails where the two differ), and "reopens", where there is the fixture
`reopen`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pytest

from penstock.testing.clock import Clock

pytest.register_assert_rewrite("penstock.testing.conformance.factories")

MARKERS = (
    "needs(capability): a promise of stores with this capability; others do not run the test",
    "lacks(capability): a promise of stores without this capability",
    # Run with all ids in one bucket on a store that does not declare "order across buckets".
    'scope(of="bucket"): a promise within one bucket of ids; without it, one of the whole store',
)
_left_out = pytest.StashKey[Counter[str]]()


class CapabilityHooks:
    """The hook that tells the suite what the store under test can."""

    @pytest.hookspec(firstresult=True)
    def pytest_penstock_capabilities(self, item: pytest.Item) -> Collection[str] | None:
        """What the store that this test runs on can; None: nothing beyond the protocol."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(CapabilityHooks)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the store cannot, and remember why."""
    reasons = {item: reason for item in items if (reason := _reason_against(item))}
    config.stash[_left_out] = Counter(reasons.values())
    if reasons:
        config.hook.pytest_deselected(items=list(reasons))
        items[:] = [item for item in items if item not in reasons]


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    left_out = config.stash.get(_left_out, Counter[str]())
    return [f"not run, {reason}: {count}" for reason, count in sorted(left_out.items())]


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """A clock that moves when the test says so."""
    clock = Clock()
    scoped = request.node.get_closest_marker("scope") is not None
    if scoped and "order across buckets" not in _capabilities_of(request.node):
        # Imported here: pytest rewrites its assertions, and has to be asked first.
        from penstock.testing.conformance.factories import put_in_one_bucket

        put_in_one_bucket(clock)
    return clock


@pytest.fixture
def capabilities(request: pytest.FixtureRequest) -> frozenset[str]:
    """What the suite was told that the store can."""
    return _capabilities_of(request.node)


def _reason_against(item: pytest.Item) -> str | None:
    needed = _named(item, "needs")
    lacked = _named(item, "lacks")
    if not needed and not lacked:
        return None
    can = _capabilities_of(item)
    if missing := sorted(needed - can):
        return f"as the store does not declare {missing[0]!r}"
    if present := sorted(lacked & can):
        return f"as the store declares {present[0]!r}"
    return None


def _named(item: pytest.Item, marker: str) -> set[str]:
    return {str(name) for mark in item.iter_markers(marker) for name in mark.args}


def _capabilities_of(item: pytest.Item) -> frozenset[str]:
    return frozenset(item.ihook.pytest_penstock_capabilities(item=item) or ())
