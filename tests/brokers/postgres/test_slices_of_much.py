"""Slices of a history that is too long to be counted: a sample says where to cut."""

from __future__ import annotations

from itertools import chain

import psycopg

from penstock.broker.slice import Selection

ATTEMPTS = Selection(table="attempts")
FILL = """
    insert into penstock.history (kind, at, attempt, state, error)
    select 'attempt', %s, 1, 'failed', repeat('x', 200) from generate_series(1, 40000)
"""


def test_a_sample_cuts_it_into_parts_of_about_as_many_rows(postgres_broker, postgres_store_url):
    """Two transactions of very different numbers: positions themselves say nothing about rows."""
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:
        connection.execute(FILL, (postgres_broker.clock.now(),))
        for _ in range(200):
            connection.execute("select pg_current_xact_id()")
        connection.execute(FILL, (postgres_broker.clock.now(),))

    parts = [
        [row for batch in postgres_broker.scan(part) for row in batch["position"].to_pylist()]
        for part in postgres_broker.slices(ATTEMPTS, at_most=4)
    ]

    assert len(parts) == 4
    assert all(10_000 < len(part) < 30_000 for part in parts)
    every = sorted(chain.from_iterable(parts))
    assert len(every) == len(set(every)) == 80_000
    # Of a few at the end the sample has seen next to nothing: then they are counted.
    last = postgres_broker.slices(ATTEMPTS, after=every[-13], until=every[-1], at_most=4)
    sizes = [sum(batch.num_rows for batch in postgres_broker.scan(part)) for part in last]
    assert len(sizes) == 4
    assert sum(sizes) == 12
