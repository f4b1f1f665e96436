"""The line to PostgreSQL is cut at any moment of a call, before or after its bytes went through.

Not a message of a verb is left out: the n-th one is cut, for every n, until none is left to cut.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest

from penstock import App, Refused, State, StoreUnreachable, UnknownOutcome
from penstock.broker.filter import Filter
from penstock.broker.values import Batch
from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job, failed, put_back, succeeded, try_again
from penstock.schedules.timetable import Timetable
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_schedule,
    a_worker,
    begun,
    claim,
    history_of,
    part,
    settle_and_claim_for,
    some_jobs,
)
from tests.stories.conftest import Story, eventually
from tests.stories.proxy import Proxy

MOST_MESSAGES = 40
SENT = {
    "plain": lambda clock: some_jobs(clock, 5),
    "one": lambda clock: [a_job(clock)],
    "tagged": lambda clock: some_jobs(clock, 3, tags={"tenant": "a"}),
    "mixed": lambda clock: [*some_jobs(clock, 3), *some_jobs(clock, 2, tags={"tenant": "b"})],
}


@pytest.fixture
def proxy(postgres_store_url: str) -> Iterator[Proxy]:
    with Proxy(postgres_store_url) as proxy:
        yield proxy
    # What is under way in a session that was cut off must not reach into the next test's store.
    with psycopg.connect(postgres_store_url, autocommit=True) as looker:
        eventually(lambda: _busy(looker) == 0)


@pytest.fixture
def far(proxy: Proxy, clock: Clock) -> Iterator[PostgresBroker]:
    """A broker at the other end of the line."""
    broker = PostgresBroker(proxy.url, clock=clock)
    yield broker
    proxy.heal()
    broker.close()


def each_message(proxy: Proxy) -> Iterator[int]:
    """The number of the message to cut: the first, the second, ... until the verb has no more."""
    for number in range(MOST_MESSAGES):
        yield number
        proxy.heal()
        if not proxy.cuts:
            assert number > 0
            return
    pytest.fail("there was no end to it")


def run_all(broker: PostgresBroker, clock: Clock) -> Counter[str]:
    """Work off what is there, as often as it is handed out."""
    broker.renew([a_worker()], holding=[])
    ran: Counter[str] = Counter()
    while jobs := claim(broker, 100):
        ran.update(job.id for job in jobs)
        assert all(broker.settle([(job, succeeded()) for job in jobs]))
    clock.advance(seconds=1)
    return ran


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "for good"])
def test_an_enqueue(proxy, far, postgres_broker, kind, where, times):  # noqa: PLR0917
    """Stored once, or told that nobody knows, or certainly not: and sent again, stored once."""
    clock = far.clock
    seen: Counter[str] = Counter()
    if times > 1:  # else the first messages are about the lane, which is new
        far.enqueue(SENT[kind](clock))
        run_all(postgres_broker, clock)
    for number in each_message(proxy):
        jobs = SENT[kind](clock)
        sent = jobs
        proxy.cut_nth(number, where, times)
        try:
            far.enqueue(jobs)
            seen["stored"] += 1
        except UnknownOutcome as error:
            seen["unknown"] += 1
            sent = error.jobs
        except StoreUnreachable:
            seen["refused"] += 1
            assert postgres_broker.find(Filter(state=(State.READY,))).jobs == []
        proxy.heal()

        far.enqueue(sent)

        assert run_all(postgres_broker, clock) == Counter({job.id: 1 for job in jobs})
    # Cut once, the broker has sent it again itself.
    assert bool(seen["unknown"]) == (times > 1)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_batch(proxy, far, clock, postgres_broker, where):
    """It counts on from what was stored: the count is asked for, and the rest is sent."""
    for number in each_message(proxy):
        jobs, batch = some_jobs(clock, 5), f"import-{number}-{where}"
        proxy.cut_nth(number, where)
        try:
            far.enqueue(jobs, batch=Batch(batch, 0))
        except (UnknownOutcome, StoreUnreachable):
            proxy.heal()
            if far.enqueue([], batch=Batch(batch)).batch == 0:
                # The server may still be committing what it was sent: then this is refused.
                with suppress(Refused):
                    far.enqueue(jobs, batch=Batch(batch, 0))
        proxy.heal()

        assert far.enqueue([], batch=Batch(batch)).batch == 5
        assert sum(run_all(postgres_broker, clock).values()) == 5


def what_is_stored(broker, flow):
    """Whether the flow is there, and the states of its jobs, all of one moment."""
    while True:
        stored = broker.flow(flow.flow.id) is not None
        states = flow.states(broker, "work") + flow.states(broker, "last")
        # The server may still have been committing what it was sent: then look again.
        if stored == (broker.flow(flow.flow.id) is not None):
            return stored, states


@pytest.mark.parametrize("fields", [{}, {"tags": {"a": "b"}}], ids=["plain", "tagged"])
@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("times", [1, 1000], ids=["once", "for good"])
def test_a_flow(proxy, far, postgres_broker, fields, where, times):  # noqa: PLR0917
    """All of it is stored once, or nothing: and sent again, it runs once from end to end."""
    clock = far.clock
    for number in each_message(proxy):
        flow = a_flow(clock, work=part(jobs=3, **fields), last=part("work", **fields))
        proxy.cut_nth(number, where, times)
        try:
            flow.send(far)
        except (UnknownOutcome, StoreUnreachable):
            proxy.heal()
            stored, states = what_is_stored(postgres_broker, flow)
            assert all((state is not None) == stored for state in states)
        proxy.heal()

        flow.send(far)

        assert run_all(postgres_broker, clock) == Counter({job.id: 1 for job in flow.jobs})
        assert postgres_broker.flow(flow.flow.id).ended_at is not None


@pytest.mark.parametrize("fields", [{}, {"tags": {"a": "b"}}], ids=["plain", "tagged"])
@pytest.mark.parametrize("good", [True, False], ids=["freed", "cancelled"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_the_end_of_a_need(proxy, far, fields, good, where):
    """Whoever did not hear the answer asks again: what follows is freed, or cancelled, once."""
    clock = far.clock
    for number in each_message(proxy):
        flow = a_flow(clock, work=part(jobs=2, **fields), last=part("work", **fields))
        flow.send(far)
        held = claim(far, 4)
        outcomes = [succeeded(b"1"), succeeded(b"2") if good else failed("ValueError")]
        pairs = [(job, begun(end, clock.now())) for job, end in zip(held, outcomes, strict=True)]
        proxy.cut_nth(number, where)
        try:
            far.settle(pairs)
        except StoreUnreachable:
            proxy.heal()
            far.settle(pairs)  # as the worker's line does
        proxy.heal()

        row = flow.row(far, "work")
        assert (row.jobs_left, row.bad) == (0, 0 if good else 1)
        assert flow.states(far, "last") == [State.READY if good else State.CANCELLED]
        assert run_all(far, clock) == Counter(flow.ids("last") if good else [])
        assert far.flow(flow.flow.id).ended_at is not None


@pytest.mark.parametrize("kind", ["one", "tagged", "mixed"])
def test_a_first_transaction_that_commits_late(proxy, far, clock, postgres_store_url, kind):
    """It waits for a lock while its caller is cut off; what was sent again meets it there."""
    far.enqueue(SENT[kind](clock))
    run_all(far, clock)
    jobs = SENT[kind](clock)
    answers: list[BaseException | None] = []

    def send() -> None:
        try:
            far.enqueue(jobs)
        except BaseException as error:
            answers.append(error)
        else:
            answers.append(None)

    with (
        psycopg.connect(postgres_store_url) as blocker,
        psycopg.connect(postgres_store_url, autocommit=True) as looker,
    ):
        blocker.execute("lock table penstock.tally in share mode")
        sender = threading.Thread(target=send)
        for waiting in (1, 2):  # the first, and the one that the broker sends again
            if waiting == 1:
                sender.start()
            eventually(lambda wanted=waiting: _waiting(looker) >= wanted)
            proxy.hang_up_all()
        sender.join()
        [error] = answers
        assert isinstance(error, UnknownOutcome)
        assert Counter(_ids(error.jobs)) == Counter(job.id for job in jobs)
        again = threading.Thread(target=lambda: far.enqueue(error.jobs))
        again.start()
        eventually(lambda: _waiting(looker) >= 3)
        blocker.rollback()
    again.join()

    assert run_all(far, clock) == Counter({job.id: 1 for job in jobs})


def _busy(connection: psycopg.Connection) -> int:
    """How many other sessions are in a statement or in a transaction."""
    row = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid() and state <> 'idle' and backend_type = 'client backend'"
    ).fetchone()
    return 0 if row is None else row[0]


def _waiting(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from pg_locks where not granted").fetchone()
    return 0 if row is None else row[0]


def _ids(jobs) -> list[str]:
    return [id for job in jobs for id in ([job.id] if isinstance(job, Job) else job.ids())]


OUTCOMES = {
    "succeeded": lambda clock: succeeded(b"1"),
    "failed": lambda clock: failed("ValueError"),
    "again": lambda clock: try_again("OSError", clock.now()),
    "back": lambda clock: put_back("limit"),
}


@pytest.mark.parametrize("fields", [{}, {"tags": {"a": "b"}}], ids=["plain", "tagged"])
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_settle(proxy, far, fields, outcome, where):
    """Whoever did not hear the answer asks again: it is applied once, whichever of them did it."""
    clock = far.clock
    for number in each_message(proxy):
        jobs = some_jobs(clock, 4, **fields)
        far.enqueue(jobs)
        held = claim(far, 4)
        assert len(held) == 4
        pairs = [(job, begun(OUTCOMES[outcome](clock), clock.now())) for job in held]
        proxy.cut_nth(number, where)
        try:
            accepted = far.settle(pairs)
        except StoreUnreachable:
            proxy.heal()
            accepted = far.settle(pairs)  # as the worker's line does
            assert len(set(accepted)) == 1
        proxy.heal()

        assert sum(count.running for count in far.count()) == 0
        ended = {
            job.id: [event.state for event in history_of(far, job.id) if event.kind == "attempt"]
            for job in jobs
        }
        assert [len(states) for states in ended.values()] == [1] * 4, (number, accepted, ended)
        left = run_all(far, clock)
        assert left == (Counter(job.id for job in jobs) if outcome in {"again", "back"} else {})


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_settle_that_claims_on_the_way(proxy, far, clock, where):
    """What the lost answer had claimed is put back uncounted, and nothing is stuck."""
    for number in each_message(proxy):
        jobs = some_jobs(clock, 6)
        far.enqueue(jobs)
        held = claim(far, 3)
        pairs = [(job, succeeded()) for job in held]
        proxy.cut_nth(number, where)
        more: list[Job] = []
        try:
            accepted, more = settle_and_claim_for(far, pairs, a_worker(), limit=2)
            assert accepted == [True] * 3
        except StoreUnreachable:
            proxy.heal()
            far.renew([a_worker()], holding=[job.id for job in held])
            far.settle(pairs)
        proxy.heal()

        far.settle([(job, succeeded()) for job in more])
        left = run_all(far, clock)
        known = {job.id for job in (*held, *more)}
        until = time.monotonic() + 5
        while known | set(left) != {job.id for job in jobs} and time.monotonic() < until:
            # The server was still committing what it had been sent: a worker compares again.
            time.sleep(0.05)
            left.update(run_all(far, clock))
        assert known | set(left) == {job.id for job in jobs}
        assert not set(left) & {job.id for job in (*held, *more)}
        for job in jobs:
            events = [event for event in history_of(far, job.id) if event.kind == "attempt"]
            assert [(event.state, event.lapses) for event in events] == [(State.SUCCEEDED, 0)]


def cut_under_load(story: Story, proxy: Proxy, seed: int, count: int, share: float) -> None:
    story.worker_url = proxy.url
    handles = story.app.enqueue([story.task("nap").job(n, 0.002) for n in range(count)])
    fleet = story.start(processes=2, lease=15.0)
    eventually(lambda: len(story.ledger()) > 20)
    proxy.cuts = 0
    proxy.cut_at_random(share, seed)
    eventually(
        lambda: sum(count.total for count in story.broker.count()) == 0, timeout=180 + count / 50
    )
    proxy.heal()

    print(f"{proxy.cuts} cuts in {count} jobs")
    assert proxy.cuts > 2
    assert story.states(handles) == {State.SUCCEEDED: count}
    assert set(story.successes().values()) == {1}
    assert story.counted() == {}
    starts = Counter(line[1] for line in story.ledger("nap"))
    assert set(starts.values()) == {1}
    assert fleet.process.poll() is None


def test_a_fleet_whose_lines_are_cut_again_and_again_runs_each_job_once(tmp_path, postgres_url):
    with Proxy(postgres_url) as proxy, closing(Story(tmp_path, postgres_url)) as story:
        cut_under_load(story, proxy, seed=1, count=600, share=0.1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_fleet_whose_lines_are_cut_for_long_runs_each_job_once(tmp_path, postgres_url, seed):
    with Proxy(postgres_url) as proxy, closing(Story(tmp_path, postgres_url)) as story:
        cut_under_load(story, proxy, seed=seed, count=40_000, share=0.03)


def test_an_app_tells_its_callers_apart_what_is_known_from_what_is_not(proxy):
    """The exception is `UnknownOutcome`, and its jobs can be sent as they are."""
    app = App(proxy.url)

    @app.task(name="mail:send")
    def send(n: int) -> None: ...

    send.enqueue(0)
    assert app.broker.count()  # and with it what the enqueue still had to say has gone through
    proxy.cut_nth(0, "after", times=1000)
    with pytest.raises(UnknownOutcome, match="Sending them again is safe") as caught:
        send.enqueue(1)
    with pytest.raises(StoreUnreachable):
        send.enqueue(2)
    proxy.heal()

    app.enqueue(caught.value.jobs)

    assert sum(count.ready for count in app.broker.count()) == 2
    app.close()


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_slot_of_a_schedule(proxy, far, clock, postgres_broker, where):
    """Whoever looks again sees whether it was decided: one job for it, one row of history."""
    far.put(a_schedule(every=60.0))
    timetable = Timetable(far, clock, dict)
    timetable.turn()
    seen: Counter[str] = Counter()
    for number in each_message(proxy):
        clock.advance(seconds=60)
        proxy.cut_nth(number, where)
        try:
            timetable.turn()
        except StoreUnreachable:
            seen["cut"] += 1
            proxy.heal()
            timetable.turn()
        proxy.heal()
        seen["slots"] += 1

        assert run_all(postgres_broker, clock).total() == 1
    rows = [row for row in history_of(postgres_broker, None) if row.kind == "schedule"]
    assert seen["cut"] > 5
    assert len(rows) == 1 + seen["slots"]
