"""A PostgreSQL that is restarted while jobs talk to it: they wait for it, and none is run twice."""

from __future__ import annotations

import time

from penstock import State
from tests.stories.conftest import eventually


def test_jobs_of_every_kind_outlive_two_seconds_without_their_server(own_story, own_postgres):
    story = own_story
    story.start(processes=1, lease=15.0, queues=["default"])
    kinds = ["note_down", "note_down_apart", "note_down_async"]
    handles = [story.task(kind).enqueue(n) for n, kind in enumerate(kinds, 1)]
    eventually(lambda: len(story.ledger("note_down")) == 3)

    own_postgres.stop()
    (story.folder / "ledger.away").touch()
    time.sleep(2.0)
    own_postgres.start()

    for n, handle in enumerate(handles, 1):
        eventually(lambda handle=handle: story.attempts(handle.id))
        job = story.broker.get(handle.id)
        assert (job.state, job.failures, job.lapses) == (State.SUCCEEDED, 0, 0), job.error
        assert (job.attempt, job.result) == (1, b"%d" % (2 * n))
    assert len(story.ledger("note_down")) == 3
    eventually(lambda: len(story.ledger("nap")) == 3)
