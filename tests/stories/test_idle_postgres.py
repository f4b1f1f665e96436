"""Workers that have nothing to do: how little they ask of the server, and how soon they start."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from penstock import App, State
from penstock.broker.views import WorkerRow
from penstock.job import Outcome
from penstock.testing.conformance.factories import claim_for
from penstock.testing.postgres import Server
from tests.stories.conftest import TASKS_FILE, Story, eventually

MOST_PER_PROCESS = 150 / 200  # statements a second: 150 for 200 processes
_STATEMENT = re.compile(r"LOG: +(?:statement|execute [^:]*):\s*(?:--[^\n]*\n\s*)*([^\n]*)")


@pytest.fixture
def talkative() -> Iterator[Server]:
    """A server that writes down every statement."""
    settings = {"log_statement": "all", "fsync": "off", "max_connections": 1000}
    with Server(settings) as server:
        yield server


def statements(server: Server, seconds: float) -> Counter[str]:
    """What is asked of the server in this time."""
    before = len(server.log)
    time.sleep(seconds)
    return Counter(text[:60] for text in _STATEMENT.findall(server.log[before:]))


def connections(server: Server) -> int:
    with psycopg.connect(server.url()) as connection:
        [(count,)] = connection.execute(
            "select count(*) from pg_stat_activity where backend_type = 'client backend'"
        )
        return count


def stay_idle(story: Story, server: Server, supervisors: int, processes: int) -> None:
    story.broker.workers()
    others = connections(server)
    for _ in range(supervisors):
        story.start(processes=processes, threads=2, lease=15.0)
    total = supervisors * processes
    # A supervisor renews for children that are not up yet: those that are have claimed.
    eventually(
        lambda: sum(row.claimed_at is not None for row in story.broker.workers()) == total,
        timeout=60 + 3 * total,
    )
    time.sleep(5 + total / 20)

    asked = statements(server, 10)

    rate = asked.total() / 10
    print(f"{total} idle processes: {rate:.1f} statements/s, {rate / total:.2f} each")
    print(*asked.most_common(8), sep="\n")
    # Few processes have a supervisor each, which renews for them every five seconds.
    # Once a minute each asks whether the gauges are written: of few, all in these ten seconds.
    assert rate < MOST_PER_PROCESS * total + supervisors * 0.2 + min(total, 4) * 0.1, asked
    # One to claim and one to listen; only the children listen.
    assert connections(server) - others <= 2 * total + supervisors
    assert story.task("nap").enqueue(1).result(timeout=60) == 1


def test_idle_workers_ask_for_little(talkative, tmp_path):
    with closing(Story(tmp_path, talkative.create_database())) as story:
        stay_idle(story, talkative, supervisors=2, processes=2)


@pytest.mark.soak
def test_two_hundred_idle_workers_ask_for_little(talkative, tmp_path):
    with closing(Story(tmp_path, talkative.create_database())) as story:
        stay_idle(story, talkative, supervisors=4, processes=50)


_LATER = """
import sys, time
sys.path.insert(0, sys.argv[1])
import story_tasks
app = story_tasks.make_app(sys.argv[2])
for n in range(int(sys.argv[3])):
    due = time.monotonic() + 1 + 0.3 * n
    app.tasks["nap"].options(delay=1 + 0.3 * n).enqueue(n)
    print(due, flush=True)
"""


def test_a_delayed_job_that_another_process_enqueued_starts_on_time(story):
    """D13: whoever waits knows when the next one is due."""
    story.start()
    assert story.task("nap").enqueue(-1).result(timeout=60) == -1
    time.sleep(3)  # by now it looks as rarely as it ever will

    command = [sys.executable, "-c", _LATER, str(TASKS_FILE.parent), story.url, "5"]
    produced = subprocess.run(
        command, env=story.environment(), capture_output=True, text=True, check=True
    )

    due = [float(line) for line in produced.stdout.split()]
    eventually(lambda: len(story.ledger("nap")) == 6)
    late = [float(line[-1]) - at for line, at in zip(story.ledger("nap")[1:], due, strict=True)]
    print("late by", *(f"{seconds * 1000:.0f} ms" for seconds in late))
    assert min(late) > -0.1
    assert max(late) < 20  # a machine may be busy; a job that is forgotten is later than that


def test_a_job_enqueued_a_moment_after_another_is_not_left_to_the_poll(postgres_url):
    """Hints are throttled; the one that was left out must not cost two seconds."""
    worker, producer = App(postgres_url), App(postgres_url)

    @producer.task(name="mail:send")
    def send(n: int) -> None: ...

    broker, row = worker.broker, WorkerRow(id="w", tasks={"mail:send": 1})
    broker.traits.rules_version()
    eventually(lambda: broker.traits.poll_seconds() == 2.0)
    producer.enqueue([send.options(delay=100).job(0)])
    send.enqueue(1)  # within the same five milliseconds

    found: list[str] = []
    until = time.monotonic() + 1.0
    while not found and time.monotonic() < until:
        broker.wait(None, 0.05)
        found = [job.id for job in claim_for(broker, row, limit=5)]

    assert len(found) == 1
    worker.close()
    producer.close()


def test_a_job_of_an_idle_worker_is_claimed_in_one_round_trip(talkative):
    """It goes by the lane that the notification names, and looks around when it has started."""
    url = talkative.create_database()
    with closing(App(url)) as worker, closing(App(url)) as producer:

        @producer.task(name="mail:send")
        def send(n: int) -> None: ...

        broker, row = worker.broker, WorkerRow(id="w", tasks={"mail:send": 1})
        broker.traits.rules_version()  # starts to listen
        eventually(lambda: broker.traits.poll_seconds() == 2.0)
        rounds: list[Counter[str]] = []
        # More than once: on a busy machine its last look around may be too long ago.
        while not rounds or (rounds[-1] and len(rounds) < 5):
            assert claim_for(broker, row, limit=5) == []
            broker.wait(None, 0)
            handle = send.enqueue(len(rounds))
            while not broker.wait(None, 10.0):
                pass
            before = len(talkative.log)
            [job] = claim_for(broker, row, limit=5)
            asked = Counter(re.findall(r"execute penstock_(\w+)", talkative.log[before:]))
            assert job.id == handle.id
            broker.settle([(job, Outcome(State.SUCCEEDED, "returned"))])
            rounds.append(asked - Counter(claim=1))
        assert not rounds[-1], rounds
