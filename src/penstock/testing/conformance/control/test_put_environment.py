"""Put, of the environment of a store: the first name stands until somebody adopts the store."""

from __future__ import annotations

import json

import pytest

from penstock.broker.environment import ENVIRONMENT_ID, Environment
from penstock.errors import Refused


def test_the_first_name_stands(broker, clock):
    assert broker.records(Environment) == []

    first = broker.put(Environment(environment="production", places={"": "a"}), "ada", "new")
    second = broker.put(Environment(environment="staging"), "bob", "clone")

    assert second == first
    assert broker.records(Environment) == [first]
    assert (first.environment, first.author, first.reason) == ("production", "ada", "new")
    assert abs(first.set_at - clock.now()) < 60


def test_who_adopts_a_store_takes_its_place(broker):
    broker.put(Environment(environment="production"))

    adopted = broker.put(Environment(environment="staging", adopts=True), "bob", "a clone")

    assert broker.records(Environment) == [adopted]
    assert (adopted.environment, adopted.author, adopted.adopts) == ("staging", "bob", False)
    assert broker.put(Environment(environment="production"), "ada") == adopted


def test_the_history_says_who_named_adopted_and_let_go(broker):
    broker.put(Environment(environment="production"), "ada", "new")
    broker.put(Environment(environment="production"), "ada", "again")
    broker.put(Environment(environment="staging", adopts=True), "bob", "a clone")
    assert broker.clear(Environment, ENVIRONMENT_ID, "eve", "anybody")
    assert not broker.clear(Environment, ENVIRONMENT_ID)

    rows = [json.loads(row.data) for row in broker.history() if row.kind == "environment"]
    assert [
        (row["says"], row["before"], row["environment"], row["author"], row["reason"])
        for row in rows
    ] == [
        ("named", "", "production", "ada", "new"),
        ("adopted", "production", "staging", "bob", "a clone"),
        ("let go", "staging", "", "eve", "anybody"),
    ]
    assert broker.records(Environment) == []


def test_a_name_that_nobody_can_read_is_refused(broker):
    for wrong in ("", "a\nb"):
        with pytest.raises(Refused, match="environment"):
            broker.put(Environment(environment=wrong))

    assert broker.records(Environment) == []


def test_where_a_store_is_stays_the_same(broker):
    places = {place: ids[0] for place, ids in broker.traits.places().items()}

    kept = broker.put(Environment(environment="production", places=places))

    assert kept.places == places
    assert all(kept.places[place] in ids for place, ids in broker.traits.places().items())
