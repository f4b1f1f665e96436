"""A child is killed while its claim is under way: the server carries the claim out all the same."""

from __future__ import annotations

import os
import signal

import psycopg
import pytest

from penstock import State
from tests.stories.conftest import Story, eventually

LEASE = 120.0
SOON = 60.0  # about a second is usual; left to leases it would take two of them
_CLAIMS = 4855284201  # the lock that claims share, and that whoever sets a rule takes alone
_WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path) -> Story:
    story = Story(tmp_path, request.getfixturevalue("own_store_url"))
    yield story
    story.close()


def test_what_it_takes_is_put_back_at_once_and_counts_no_lapse(story: Story):
    fleet = story.start(lease=LEASE)
    story.task("nap").enqueue(0).result(timeout=60)
    [child] = fleet.children()
    with psycopg.connect(story.url, autocommit=True) as admin:
        admin.execute("select pg_advisory_lock(%s)", (_CLAIMS,))
        handles = story.app.enqueue([story.task("nap").job(n) for n in range(8)])
        eventually(lambda: admin.execute(_WAITING).fetchone() == (1,))

        os.kill(child, signal.SIGKILL)
        eventually(lambda: "SIGKILL" in fleet.output())

    eventually(lambda: story.states(handles) == {State.SUCCEEDED: 8}, SOON)
    assert story.counted() == {}
