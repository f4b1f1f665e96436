"""Map here, reduce there: results of a flow of many children are a frame that Spark reduces."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from penstock import App
from tests.workers import drain

CHILDREN = [2_000, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]


# REQUIREMENTS S25
@pytest.mark.parametrize("children", CHILDREN)
def test_the_results_of_a_map_are_reduced_by_spark(
    shared_spark: Any, postgres_url: str, children: int
):
    with closing(App(postgres_url)) as app:

        @app.task(name="numbers:square")
        def square(n: int) -> int:
            return n * n

        flow = app.flow("squares").enqueue(square.map(range(children)))
        drain(app, threads=2)

        results = shared_spark.read.format("penstock").options(
            table="results", url=postgres_url, flow=flow.id
        )
        [reduced] = results.load().selectExpr("count(*)", "sum(cast(result as bigint))").collect()

    assert tuple(reduced) == (children, sum(n * n for n in range(children)))
