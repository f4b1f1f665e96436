"""Find, newest first: pages of any size hold what the memory broker's do."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.broker.filter import Filter
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.ids import TICKS, derived_id
from penstock.job import State, failed, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle
from penstock.testing.conformance.look.test_find_newest import all_pages


def test_all_stores_page_alike(fresh_broker):
    """Ids whose times differ by less than ids can tell, alike, or far apart; pages of any size."""
    steps = st.sampled_from([0.0, 1e-7, 2.5e-7, 1 / TICKS, 1e-4, 1e-3, 0.5, 61.0])
    kinds = st.sampled_from(["id", "derived", "derived and tagged", "tagged"])
    moves = st.lists(st.tuples(steps, kinds, st.sampled_from(["", "fail", "done"])), max_size=14)

    @settings(
        max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(moves=moves, limit=st.integers(1, 6), seed=st.integers(0, 1 << 16))
    @example(moves=[(0.0, "derived", "")] * 9, limit=2, seed=1)
    def check(moves: list[tuple[float, str, str]], limit: int, seed: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            clock, names = Clock(), random.Random(seed)
            broker, model = fresh_broker(Path(folder), clock), MemoryBroker(clock)
            for step, kind, end in moves:
                clock.advance(seconds=step)
                tags = {"tags": {"tenant": "a"}} if "tagged" in kind else {}
                derived = {"id": derived_id(str(names.random()))} if "derived" in kind else {}
                job = a_job(clock, **derived, **tags)
                for each in (broker, model):
                    each.enqueue([job])
                    # All: which of two is first within a quarter of a microsecond nobody promises.
                    for taken in claim(each, limit=100) if end else ():
                        settle(each, taken, failed("x") if end == "fail" else succeeded())
            for wanted in (
                Filter(),
                Filter(derived=True),
                Filter(tags={"tenant": ("a",)}),
                Filter(state=(State.FAILED,)),
                Filter(state=(State.SUCCEEDED,)),
            ):
                expected = ids_of(all_pages(model, wanted, 1000))
                assert ids_of(all_pages(broker, wanted, limit)) == expected
                assert ids_of(all_pages(model, wanted, limit)) == expected
            broker.close()

    check()
