"""Find over shards: the pages of one store, and about as much read as for one."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.broker.filter import Filter
from penstock.brokers.memory import MemoryBroker
from penstock.job import State, failed, succeeded
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import claim, ids_of, settle
from tests.brokers.sharded.unplugged import IN_A, IN_B, Unplugged, job_in, sharded

FILTERS = (
    Filter(),
    Filter(state=(State.READY,)),
    Filter(state=(State.FAILED, State.SUCCEEDED)),
    Filter(tags={"tenant": ("a",)}),
)
SHARDS, JOBS = 4, 400


def filled(clock: Clock, buckets) -> list[Unplugged]:
    """Shards with a job in each of these buckets, one after the other."""
    stores = [Unplugged(clock) for _ in range(SHARDS)]
    broker = sharded(clock, *stores)
    for bucket in buckets:
        clock.advance(seconds=1)
        broker.enqueue([job_in(clock, bucket)])
    return stores


def pages(broker, filter: Filter, limit: int) -> list[list[str]]:
    found, after = [], None
    while True:
        page = broker.find(filter, after, limit)
        found.append(ids_of(page.jobs))
        after = page.after
        if after is None:
            return found


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 1023),  # the bucket of a batch
            st.integers(1, 12),  # its jobs
            st.booleans(),  # or each in another one
            st.sampled_from(["", "a"]),
            st.sampled_from(["", "", "fail", "done"]),
        ),
        max_size=12,
    ),
    limit=st.integers(1, 30),
)
@example(batches=[(0, 12, False, "", "")] * 3 + [(1023, 12, False, "", "")] * 2, limit=30)
@example(batches=[(7, 12, True, "", "")] * 8, limit=10)
def test_pages_are_those_of_one_store(batches, limit: int):
    clock = Clock()
    broker = sharded(clock, *(Unplugged(clock) for _ in range(SHARDS)))
    one = MemoryBroker(clock)
    for bucket, jobs, spread, tenant, end in batches:
        clock.advance(seconds=0.5)
        tags = {"tags": {"tenant": tenant}} if tenant else {}
        for number in range(jobs):
            job = job_in(clock, (bucket + 331 * number * spread) % 1024, **tags)
            for store in (broker, one):
                store.enqueue([job])
        for store in (broker, one) if end else ():
            while taken := claim(store, limit=100):
                for job in taken:
                    settle(store, job, failed("x") if end == "fail" else succeeded())

    for wanted in FILTERS:
        # What says that there is more may be followed by nothing that matches.
        shown = [page for page in pages(broker, wanted, limit) if page]
        assert shown == [page for page in pages(one, wanted, limit) if page]


def test_a_page_reads_little_more_than_it_shows(clock):
    spread = sharded(clock, *filled(clock, [331 * number % 1024 for number in range(JOBS)]))
    of_one = sharded(clock, *filled(clock, [IN_A] * (JOBS // 2) + [IN_B] * (JOBS // 2)))

    for broker in (spread, of_one):
        assert len(broker.find(Filter(), None, 100).jobs) == 100
        assert broker.find(Filter(), None, 100).examined <= 2 * 101


def test_a_shard_that_goes_away_between_two_pages_ends_the_page(clock):
    stores = filled(clock, [IN_A, IN_B] + [IN_A] * 60)
    broker = sharded(clock, *stores)
    whole = ids_of(broker.find(Filter()).jobs)
    once = stores[0].find

    def and_gone(*args):
        page = once(*args)
        stores[0].away = True
        return page

    stores[0].find = and_gone
    first = broker.find(Filter())
    stores[0].away, stores[0].find = False, once
    clock.advance(seconds=10)
    rest = broker.find(Filter(), first.after)

    assert 0 < len(first.jobs) < len(whole)
    assert ids_of([*first.jobs, *rest.jobs]) == whole


def test_a_job_that_moves_meanwhile_is_shown_once(clock):
    stores = filled(clock, [IN_A, IN_B, IN_A])
    broker = sharded(clock, *stores)
    stores[1].meanwhile = lambda: broker.moves.move([IN_A], "b")

    page = broker.find(Filter())

    assert len(page.jobs) == len({job.id for job in page.jobs}) == 3
