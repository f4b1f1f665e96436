"""Running a model: on how many examples, and of how many steps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from penstock.broker.protocol import Broker
from penstock.testing.clock import Clock

# Opens a new, empty store in a folder: the fixture `fresh_broker`.
FreshBroker = Callable[[Path, Clock], Broker]


def agree(
    model: type[RuleBasedStateMachine],
    make: FreshBroker,
    examples: int,
    *,
    steps: int = 40,
    **options: Any,
) -> None:
    """Try so many examples of a model on fresh brokers that `make` makes.

    What fails is told as it is. To look for fewer steps takes minutes where each is a round trip,
    and whatever ends the test before that hides what had failed.
    """
    run_state_machine_as_test(
        type(model.__name__, (model,), {"make": staticmethod(make)}),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=cast("list[HealthCheck]", list(HealthCheck)),
            database=None,
            **options,
        ),
    )


def fewer_apart(make: FreshBroker, examples: int, times: int) -> int:
    """So many times fewer examples where each step is a round trip to another process."""
    with tempfile.TemporaryDirectory() as folder:
        broker = make(Path(folder), Clock())
        apart = broker.traits.apart
        broker.close()
    return examples // times if apart else examples
