"""Traits: what a store declares about itself is what it can."""

from __future__ import annotations

import pytest

from penstock.broker.traits import begins
from penstock.errors import Refused


def test_the_suite_runs_the_tests_of_every_capability_that_is_declared(broker, capabilities):
    """Else `pytest_penstock_capabilities` of the plugin that binds this store is to be changed."""
    assert broker.traits.capabilities == capabilities - {"reopens"}


def test_the_store_has_a_name_for_sentences(broker):
    assert broker.traits.name.strip() == broker.traits.name != ""


@pytest.mark.lacks("begins")
def test_a_store_without_a_database_refuses(broker):
    with pytest.raises(Refused):
        begins(broker)
