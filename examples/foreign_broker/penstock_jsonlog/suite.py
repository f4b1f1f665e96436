"""Binds the store to Penstock's conformance suite.

pytest -p penstock_jsonlog.suite --pyargs penstock.testing.conformance.core
"""

from __future__ import annotations

import pytest

from penstock.broker.traits import ONE_PLACE
from penstock_jsonlog import JsonLogBroker

pytest_plugins = ["penstock.testing.conformance.plugin"]


@pytest.fixture
def broker(clock, tmp_path):
    return JsonLogBroker(tmp_path / "jobs.jsonl", clock)


# Beyond the three lines: what it was given is there when it is opened again,


def pytest_penstock_capabilities():
    return ONE_PLACE | {"reopens"}


@pytest.fixture
def reopen(clock, tmp_path):
    return lambda: JsonLogBroker(tmp_path / "jobs.jsonl", clock)


# and, for penstock.testing.conformance.models, an empty store as often as a model asks for one.


@pytest.fixture
def fresh_broker():
    return lambda folder, clock: JsonLogBroker(folder / "jobs.jsonl", clock)
