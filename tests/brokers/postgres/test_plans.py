"""Plans: with 50,000 rows around, every hot statement goes by its index and touches a few rows.

The statistics are fresh, or those of empty tables, or the very plan was made for an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from penstock.broker.filter import Filter
from penstock.brokers.positions import position_text
from penstock.brokers.postgres import PostgresBroker
from penstock.enqueue.ids import Ids
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import Job, State, Unique, failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_flow, claim_for, part, settle_and_claim_for
from penstock.testing.postgres import create_database, drop_database
from tests.brokers.postgres.crowded import LANES, LARGE, ROWS, TASKS, WORKER, Crowded

CLAIMS = 10
BATCH = 100
# With some ids of packed jobs and some of rows; how many jobs it was about.
Work = Callable[[PostgresBroker, list[str], list[str]], int]


def claim_and_settle(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Parcels and due rows, best first; then their end, claim by claim."""
    for _ in range(CLAIMS):
        jobs = claim_for(broker, WORKER, None, BATCH)
        assert len(jobs) == BATCH
        assert all(broker.settle([(job, succeeded()) for job in jobs]))
    return CLAIMS * BATCH


def settle_and_claim(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """The end of one batch and the next one in one round trip."""
    jobs = claim_for(broker, WORKER, ("task-1",), BATCH)
    for _ in range(CLAIMS):
        pairs = [(job, succeeded()) for job in jobs]
        accepted, jobs = settle_and_claim_for(
            broker, pairs, WORKER, queues=("task-1",), limit=BATCH
        )
        assert all(accepted)
    assert all(broker.settle([(job, succeeded()) for job in jobs]))
    return CLAIMS * BATCH


def fail_and_try_again(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Ends that need the row of the job."""
    for number in range(CLAIMS):
        jobs = claim_for(broker, WORKER, None, 10)
        later = broker.clock.now() + 3600
        outcome = try_again("again", later) if number % 2 else failed("no")
        assert all(broker.settle([(job, outcome) for job in jobs]))
    return CLAIMS * 10


def send_again(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Ids that were sent before, plain ones and those that hold a key."""
    ids = Ids()
    for number in range(CLAIMS):
        jobs = [Job(task="task-2", queue="task-2", id=ids.next()) for _ in range(10)]
        jobs.append(
            Job(task="task-2", queue="task-2", id=ids.next(), unique=Unique(f"key-{number + 1}"))
        )
        broker.enqueue(jobs)
        assert len(broker.enqueue(jobs).known) == 10
    return CLAIMS * 20


def get(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Where it is."""
    for job in packed + rows:
        assert broker.get(job) is not None
    return 40


def why(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Where it is, and what it waits for: those before it are counted up to a bound."""
    for job in packed + rows:
        assert broker.why(job)
    return 40 * 1000 // 8


def cancel(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """One of a parcel, one with a row."""
    for job in packed[:10] + rows[:10]:
        assert broker.act("cancel", [job]) == [job]
    return 20


def look_after(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """What every worker does all the time: whose lease ran out, whose time is over, am I alive."""
    for _ in range(CLAIMS):
        broker.renew([WORKER])
        broker.renew([WORKER], [])
        assert broker.recover() == 0
        claim_for(broker, WORKER, ("nothing here",), 1)
    return CLAIMS


def gauge(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """D1: what workers do once a minute, whether there is anything to run or not.

    Each attempt is counted once, by whoever gauges next: here before the watch began.
    """
    clock = Clock(broker.clock.now())
    with closing(PostgresBroker(broker.store.url, clock)) as gauging:
        for _ in range(3):
            clock.advance(seconds=60)
            assert gauging.gauge() > 0
            assert gauging.gauge() == 0
    return 20


def find_the_newest(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """A page of each."""
    for _ in range(3):
        broker.find(Filter(state=(State.FAILED,)), limit=10)
        broker.find(Filter(tags={"tenant": ("77",)}), limit=10)
        broker.history(after=position_text(49_990), limit=10)
    return 100


def look_around(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """What pages of a dashboard ask, however much there is, and whether it was analysed or not."""
    for wanted in (
        Filter(),
        Filter(derived=True),
        Filter(state=(State.READY,)),
        Filter(state=(State.FAILED,)),
        Filter(state=(State.FAILED,), derived=True),
        Filter(state=(State.SUCCEEDED,)),
        Filter(state=(State.SUCCEEDED,), derived=True),
    ):
        first = broker.find(wanted, limit=20)
        assert len(first.jobs) == 20 or wanted.state == (State.FAILED,)
        assert len(broker.find(wanted, first.after, limit=20).jobs) > 0 or first.after is None
    for kind in (None, "attempt", "cancel"):
        assert len(broker.history(None, 20, kind=kind)) == 20
    broker.history(None, 20, kind="rule")  # there are few, or none
    broker.workers()
    return 500


def flow(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """A map is freed, ends, is read, and what follows runs; or is cancelled, and retried."""
    clock = broker.clock
    bad = [True]
    for _ in range(3):
        fields = {"task": "task-3", "queue": "flows"}
        parts = a_flow(
            clock,
            split=part(**fields),
            work=part("split", jobs=BATCH, **fields),
            last=part("work", **fields),
        )
        parts.send(broker)
        while jobs := claim_for(broker, WORKER, ("flows",), BATCH):
            outcome = failed("no") if bad else succeeded(b"1")
            broker.settle([(job, outcome) for job in jobs])
            if bad and bad.pop():
                assert broker.act("retry", [jobs[0].id]) == [jobs[0].id]
        outputs = broker.outputs(parts.nodes["work"])
        assert [output.result for output in outputs] == [b"1"] * BATCH, outputs[:3]
    return 10 * BATCH


def signal(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Who waits for a name is found among all that have tags."""
    for number in range(CLAIMS):
        wait = part(task=WAIT_TASK, tags={TAG: f"approve-{number}"})
        parts = a_flow(broker.clock, wait=wait, ship=part("wait", task="task-3", queue="shipping"))
        parts.send(broker)
        assert broker.signal(f"approve-{number}", b"1") == parts.ids("wait")
    return CLAIMS * 10


def take_turns(broker: PostgresBroker, packed: list[str], rows: list[str]) -> int:
    """Queues that are handed out by key: 20 keys of 60 jobs, in a crowded lane and in another."""
    ids, ended = Ids(), 0
    for queue, policy in (("task-3", "fair"), ("orders", "wait"), ("more", "skip")):
        broker.put(Rule(RuleKind.ORDER, queue=queue, policy=policy))
        broker.enqueue(
            [
                Job(task="task-3", queue=queue, id=ids.next(), key=f"key-{number % 20}")
                for number in range(1_200)
            ]
        )
        for _ in range(CLAIMS):
            jobs = claim_for(broker, WORKER, (queue,), 10)
            assert len(jobs) == 10
            assert all(broker.settle([(job, succeeded()) for job in jobs]))
            ended += 10
        broker.clear(Rule, rule_id(RuleKind.ORDER, queue=queue))
    return ended


WORK: list[Work] = [
    claim_and_settle,
    settle_and_claim,
    fail_and_try_again,
    send_again,
    get,
    why,
    cancel,
    look_after,
    gauge,
    find_the_newest,
    look_around,
    flow,
    signal,
    take_turns,
]


def check(crowded: Crowded, jobs: int, scanned: int = 0) -> None:
    """No large table was gone through, and little was read for each job or lane."""
    touched = crowded.touched()
    for name in LARGE:
        assert touched.scanned.get(name, 0) <= scanned, touched
        assert touched.fetched.get(name, 0) <= 8 * jobs + 20 * CLAIMS * LANES, touched


@pytest.fixture(scope="module")
def crowds(postgres_server_url: str) -> Iterator[dict[str, Crowded]]:
    """A store for each kind of statistics, made when it is asked for: filling one takes seconds."""
    made: dict[str, Crowded] = {}
    yield made
    for crowded in made.values():
        drop_database(postgres_server_url, crowded.url)


@pytest.fixture(params=["fresh statistics", "statistics of empty tables"])
def crowded(
    request: pytest.FixtureRequest, crowds: dict[str, Crowded], postgres_server_url: str
) -> Crowded:
    if request.param not in crowds:
        crowded = crowds[request.param] = Crowded(create_database(postgres_server_url))
        if request.param == "fresh statistics":
            crowded.fill()
            crowded.run("vacuum analyze")
        else:
            crowded.run("analyze")
            crowded.fill()
    return crowds[request.param]


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_every_hot_statement_goes_by_its_index(crowded, work):
    """G8, G12: enqueue, take, read and end cost the same, however many wait or run."""
    packed, rows = crowded.ids("parcel", 20), crowded.ids("job", 20)
    if work is gauge:
        with closing(PostgresBroker(crowded.url)) as counting:
            counting.gauge()
    crowded.watch()

    with closing(PostgresBroker(crowded.url)) as broker:  # whoever comes next waits until it is
        jobs = work(broker, packed, rows)

    check(crowded, jobs)


def test_plans_that_were_made_for_empty_tables_stay_good(postgres_url):
    works = [
        *(claim_and_settle, settle_and_claim, send_again, look_after),
        *(flow, signal, take_turns),
    ]
    crowded = Crowded(postgres_url)
    crowded.run("delete from penstock.parcel; delete from penstock.job; delete from penstock.sent")
    crowded.run("analyze")
    broker = PostgresBroker(postgres_url)
    ids = Ids()
    for _ in range(12):  # a plan is kept after a few
        for name in TASKS:
            later = broker.clock.now() + 86_000
            broker.enqueue([Job(task=name, queue=name, id=ids.next())])
            broker.enqueue([Job(task=name, queue=name, id=ids.next(), run_at=later)])
        jobs = claim_for(broker, WORKER, None, LANES)
        broker.settle([(job, succeeded()) for job in jobs])
        broker.renew([WORKER])
    broker.enqueue([Job(task=name, queue=name, id=ids.next()) for name in TASKS])
    sessions = crowded.sessions()
    crowded.fill()
    crowded.watch(sessions)

    jobs = sum(work(broker, [], []) for work in works)
    broker.close()

    # The session's own figures from before are added now: it may have gone through tables that
    # were as good as empty, but not through a full one.
    check(crowded, jobs, scanned=ROWS - 1)
