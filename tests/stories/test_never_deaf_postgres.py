"""Whatever becomes of the line to PostgreSQL: when it is over, a worker works again in seconds."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from penstock.testing.postgres import Server
from tests.stories.conftest import Load, Story, eventually
from tests.stories.proxy import Proxy


@pytest.fixture
def proxied(own_postgres: Server, tmp_path) -> Iterator[tuple[Story, Proxy]]:
    """A story whose workers reach the server through a proxy; the test itself goes straight."""
    url = own_postgres.create_database()
    with Proxy(url) as proxy:
        story = Story(tmp_path, url)
        story.worker_url = proxy.url
        yield story, proxy
        story.close()


def works_again(story: Story, within: float = 60.0) -> float:
    """How long a fresh job takes from here to its result."""
    began = time.monotonic()
    assert story.task("nap").enqueue(-1).result(timeout=within) == -1
    return time.monotonic() - began


def nothing_lost_and_nothing_twice(story: Story, accepted: list[str]) -> None:
    eventually(lambda: sum(count.total for count in story.broker.count()) == 0, timeout=60)
    successes = story.successes()
    assert set(accepted) <= set(successes)
    assert set(successes.values()) == {1}
    assert story.counted() == {}
    starts = Counter(line[1] for line in story.ledger("nap") if line[1] != "-1")
    assert set(starts.values()) <= {1}


def terminate_all(url: str) -> int:
    with psycopg.connect(url, autocommit=True, application_name="nemesis") as connection:
        rows = connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'penstock' and datname = current_database()"
        ).fetchall()
    return len(rows)


def test_backends_that_are_killed_again_and_again(own_story, own_postgres):
    fleet = own_story.start(processes=2, lease=15.0)
    load = Load(own_story)
    eventually(lambda: len(own_story.ledger()) > 100)

    killed = 0
    until = time.monotonic() + 3
    while time.monotonic() < until:
        killed += terminate_all(own_story.url)
        time.sleep(0.25)

    works_again(own_story)
    nothing_lost_and_nothing_twice(own_story, load.stop())
    assert killed > 20
    assert fleet.process.poll() is None
    assert fleet.said_unanswered() <= 1, fleet.output()


def test_a_server_that_stands_still_for_six_seconds(own_story, own_postgres):
    """Longer than the lease: nobody is given up, because whoever looks was away as well."""
    fleet = own_story.start(processes=2, lease=3.0)
    load = Load(own_story)
    eventually(lambda: len(own_story.ledger()) > 100)

    own_postgres.freeze()
    time.sleep(6)
    own_postgres.thaw()

    took = works_again(own_story)
    print(f"working again after {took:.1f} s")
    nothing_lost_and_nothing_twice(own_story, load.stop())
    assert fleet.process.poll() is None
    assert fleet.said_unanswered() <= 1, fleet.output()


def test_lines_that_go_dead_without_a_word(proxied):
    story, proxy = proxied
    fleet = story.start(processes=2, lease=15.0)
    works_again(story)
    time.sleep(0.5)

    proxy.half_open()

    took = works_again(story)
    print(f"working again after {took:.1f} s")
    works_again(story)
    nothing_lost_and_nothing_twice(story, [])
    assert fleet.process.poll() is None


@pytest.mark.soak
def test_lines_that_go_dead_under_load(proxied):
    story, proxy = proxied
    story.start(processes=2, lease=15.0)
    load = Load(story)
    for _ in range(2):
        count = len(story.ledger())
        eventually(lambda before=count: len(story.ledger()) > before + 100)
        proxy.half_open()
        works_again(story)

    nothing_lost_and_nothing_twice(story, load.stop())


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ready(port: int) -> bool | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2) as page:
            return json.load(page)["ok"]
    except urllib.error.HTTPError as error:
        return json.load(error)["ok"]
    except OSError:
        return None


def outlast(story: Story, server: Server, seconds: float) -> None:
    port = free_port()
    fleet = story.start(processes=2, health_port=port, red_after=4.0)
    running = story.task("nap").enqueue(1, seconds=2.0)
    eventually(lambda: ready(port))
    eventually(lambda: len(story.ledger("nap")) == 1)

    server.stop()
    began = time.monotonic()
    eventually(lambda: ready(port) is False)
    red_after = time.monotonic() - began
    while time.monotonic() - began < seconds:
        time.sleep(0.2)
        assert ready(port) is False
    server.start()

    took = works_again(story)
    print(
        f"red after {red_after:.1f} s, working again {took:.1f} s after {seconds:.0f} s of outage"
    )
    eventually(lambda: ready(port))
    assert running.result(timeout=60) == 1  # it ended in the dark, and its end was kept
    assert len(story.ledger("nap")) == 2
    assert story.counted() == {}
    assert fleet.said_unanswered() <= int(seconds // 60) + 1, fleet.output()
    assert fleet.process.poll() is None


def test_an_outage(own_story, own_postgres):
    outlast(own_story, own_postgres, seconds=6)


@pytest.mark.soak
def test_an_outage_of_ten_minutes(own_story, own_postgres):
    outlast(own_story, own_postgres, seconds=600)


def test_health_is_red_when_the_store_answers_but_no_claim_succeeds(own_story, own_postgres):
    """Renewals that work are no work."""
    port = free_port()
    own_story.start(health_port=port, red_after=4.0)
    eventually(lambda: ready(port))
    with psycopg.connect(own_story.url, autocommit=True) as admin:
        admin.execute("alter table penstock.parcel rename to parcel_away")

        eventually(lambda: ready(port) is False)
        admin.execute("alter table penstock.parcel_away rename to parcel")

    eventually(lambda: ready(port))
    works_again(own_story)


@pytest.mark.soak
def test_a_worker_that_is_started_in_an_outage_works_when_it_is_over(own_story, own_postgres):
    """Its children wait for the store: only who starts it is told."""
    fleet = own_story.start()
    [child] = eventually(fleet.children)
    own_postgres.stop()
    os.kill(child, signal.SIGKILL)
    eventually(lambda: fleet.children() and child not in fleet.children())
    time.sleep(2)

    own_postgres.start()

    works_again(own_story)


def test_a_hint_that_is_lost_is_found_by_looking(own_story, own_postgres):
    """A53: the listener's backend is killed at the moment of the enqueue, again and again."""
    own_story.start()
    works_again(own_story)
    over = threading.Event()

    def deafen() -> None:
        with psycopg.connect(own_story.url, autocommit=True) as connection:
            while not over.wait(0.01):
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where query ilike 'listen%' or query ilike 'select pg_notify%'"
                )

    nemesis = threading.Thread(target=deafen)
    nemesis.start()
    took = [works_again(own_story) for _ in range(4)]
    over.set()
    nemesis.join()

    print(f"found after {max(took):.1f} s at most")
