"""The models and the sweep of the conformance suite for longer than anybody waits."""

from __future__ import annotations

import pytest

from penstock.testing.conformance.control.test_limits_sweep import sweep
from penstock.testing.conformance.models import (
    test_flow_model,
    test_model,
    test_schedule_model,
    test_whole_flow_model,
)
from penstock.testing.conformance.models.agreeing import agree

pytestmark = pytest.mark.soak

EXAMPLES = 50
ON_DISK = pytest.mark.parametrize("fresh_broker", ["sqlite", "postgres"], indirect=True)


@ON_DISK
def test_every_broker_agrees_with_memory_for_long(fresh_broker):
    """As in the suite, with other steps each time, and many more of them."""
    agree(test_model.Agreement, fresh_broker, EXAMPLES * test_model.EXAMPLES)


@ON_DISK
def test_every_broker_agrees_with_memory_about_flows_for_long(fresh_broker):
    agree(test_flow_model.FlowAgreement, fresh_broker, EXAMPLES * test_flow_model.EXAMPLES)


@ON_DISK
def test_every_broker_agrees_with_memory_about_schedules_for_long(fresh_broker):
    agree(
        test_schedule_model.ScheduleAgreement, fresh_broker, EXAMPLES * test_schedule_model.EXAMPLES
    )


@ON_DISK
def test_every_broker_agrees_with_memory_about_whole_flows_for_long(fresh_broker):
    model = test_whole_flow_model
    agree(model.WholeFlowAgreement, fresh_broker, EXAMPLES * model.EXAMPLES, steps=model.STEPS)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10, 20))
def test_no_limit_is_ever_exceeded_for_long(broker, clock, seed):
    """V25, V26, G31, G40: the same as in the suite, for longer."""
    sweep(broker, clock, seed, steps=4000)
