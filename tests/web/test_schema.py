"""REST as its own description says it is: whatever fits it is answered, and never with a 5xx."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from penstock.testing.conformance.factories import a_flow, a_schedule, part, some_jobs
from penstock.web.access import Role
from penstock.web.rest.openapi import document
from penstock.web.routes import ROUTES
from tests.web.conftest import Web

SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
OPERATIONS = {
    f"{each.ok().method} {each.ok().path}": each.ok() for each in SCHEMA.get_all_operations()
}


EACH = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_fits_the_description_is_answered_as_it_says(web: Web, broker, clock, name):
    broker.enqueue(some_jobs(clock, 3))
    broker.put(a_schedule())
    a_flow(clock, first=part(), last=part("first")).send(broker)

    check(
        web,
        OPERATIONS[name].as_strategy(),
        schemathesis.specs.openapi.checks.response_schema_conformance,
        schemathesis.specs.openapi.checks.content_type_conformance,
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_does_not_fit_the_description_is_never_a_5xx(memory_web: Web, name):
    mode = schemathesis.GenerationMode.NEGATIVE

    check(memory_web, OPERATIONS[name].as_strategy(generation_mode=mode))


def check(web: Web, cases, *checks) -> None:
    """None of these cases is answered with a 5xx, and all as the checks want it."""
    head = {"authorization": f"Bearer {web.texts[Role.ADMIN]}"}

    @given(case=cases)
    @EACH
    def asked(case) -> None:
        answer = case.call(base_url=web.address, headers=head)
        assert answer.status_code < 500, answer.text
        if checks:
            case.validate_response(answer, checks=list(checks))

    asked()
