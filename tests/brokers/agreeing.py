"""Running a model: how brokers are made for it, and how many steps of it are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from penstock.broker.protocol import Broker
from penstock.brokers.memory import MemoryBroker
from penstock.testing.clock import Clock


def agree(
    model: type[RuleBasedStateMachine], make: Any, examples: int, *, steps: int = 40, **options: Any
) -> None:
    """Try so many examples of a model on fresh brokers that `make` makes."""
    run_state_machine_as_test(
        type(model.__name__ + "On" + make.__name__, (model,), {"make": staticmethod(make)}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            **options,
        ),
    )


def a_maker(store: str, request: pytest.FixtureRequest) -> Any:
    """How to make a fresh broker for each example."""
    if store != "postgres":
        return {"memory": memory, "sqlite": sqlite}[store]
    migrated = request.getfixturevalue("migrated_postgres")

    def postgres(folder: Path, clock: Clock) -> Broker:
        from penstock.brokers.postgres import PostgresBroker

        migrated.empty()
        return PostgresBroker(migrated.url, clock=clock)

    return postgres


def memory(folder: Path, clock: Clock) -> Broker:
    return MemoryBroker(clock)


def sqlite(folder: Path, clock: Clock) -> Broker:
    from penstock.brokers.sqlite import SqliteBroker

    return SqliteBroker(folder / "jobs.db", clock=clock)
