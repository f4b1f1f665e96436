"""Replay: jobs of the lake once more, each linked to its origin, none twice."""

from __future__ import annotations

import base64
import logging
from typing import Any

import msgspec
import pytest
from pyspark.logger import PySparkLogger

import penstock.spark
from penstock import App, KeyRing
from penstock.brokers import open_broker
from penstock.brokers.positions import position_text
from penstock.enqueue.ids import lasting_id
from penstock.errors import Refused
from penstock.spark.pipelines.replay import chosen, replay
from tests.spark.pipelines.history import an_attempt, at, attempts

KEY = b"k" * 32
FAILED = {"state": "failed", "reason": "timeout", "arguments": '{"to":"ada"}', "headers": "{}"}


@pytest.fixture
def store(shared_spark: Any, sqlite_url: str) -> Any:
    """That of the session: Spark's tasks enqueue."""
    penstock.spark.attach(shared_spark, url=sqlite_url)
    broker = open_broker(sqlite_url)
    yield broker
    broker.close()


def test_a_replayed_job_is_a_new_one_that_knows_its_origin(shared_spark, store):
    frame = attempts(
        shared_spark,
        an_attempt(1, **FAILED | {"headers": '{"trace":"x"}'}, priority=3, tags={"tenant": "a"}),
        an_attempt(2, arguments="{}"),
    )

    done = replay(chosen(frame, "task = 'mail:send' and reason = 'timeout'"), "again", store)

    assert (done.found, done.enqueued, done.known, done.refused) == (1, 1, 0, 0)
    job = store.get(lasting_id("replay", "again", "job-1"))
    assert (job.task, job.queue, job.priority, dict(job.tags)) == (
        "mail:send",
        "mail",
        3,
        {"tenant": "a"},
    )
    assert msgspec.json.decode(job.body) == {
        "args": {"to": "ada"},
        "headers": {
            "trace": "x",
            "penstock-replay-of": "job-1",
            "penstock-replay": "again",
        },
    }


# REQUIREMENTS S24
def test_the_same_replay_again_enqueues_nothing_twice(shared_spark, store):
    frame = attempts(shared_spark, *(an_attempt(n, **FAILED) for n in range(1, 6)))
    replay(chosen(frame, f"position <= '{position_text(3)}'"), "again", store)

    done = replay(chosen(frame, "reason = 'timeout'"), "again", store)
    assert (done.found, done.enqueued, done.known) == (5, 2, 3)
    other = replay(chosen(frame, "reason = 'timeout'"), "once more", store)
    assert other.enqueued == 5


def test_only_the_end_of_a_job_is_replayed_and_once(shared_spark, store):
    frame = attempts(
        shared_spark,
        an_attempt(1, job="a", state="ready", reason="timeout"),
        an_attempt(2, job="a", attempt=2, **FAILED),
        an_attempt(3, job="a", attempt=3, **FAILED),
        an_attempt(4, job="b", state="ready", reason="timeout"),
    )

    assert replay(chosen(frame, "reason = 'timeout'"), "again", store).found == 1


def test_what_cannot_be_replayed_is_named_and_the_others_are(shared_spark, store):
    frame = attempts(
        shared_spark,
        an_attempt(1, **FAILED | {"arguments": '{"password":"***","to":"ada"}'}),
        an_attempt(2, **FAILED | {"arguments": None}),
        an_attempt(3, **FAILED, flow="f", node="n"),
        an_attempt(4, **FAILED),
        an_attempt(5, **FAILED | {"task": "/tmp/x.py:f"}),
    )

    done = replay(chosen(frame, "reason = 'timeout'"), "again", store)

    assert done.reasons == {
        "job-5": "its task '/tmp/x.py:f' is a file path, not a task's name",
        "job-1": "its argument password is secret, and was not stored",
        "job-2": "its arguments were not kept",
        "job-3": "it is a member of flow f: use penstock retry",
    }
    assert (done.found, done.enqueued, done.refused) == (5, 1, 4)


def test_a_dry_run_enqueues_nothing(shared_spark, store):
    frame = attempts(shared_spark, an_attempt(1, **FAILED))

    done = replay(chosen(frame, "true"), "again", store, dry_run=True)

    assert done.enqueued == 1
    assert store.get(lasting_id("replay", "again", "job-1")) is None


@pytest.mark.parametrize("where", ["no_such_column = 1", "task = ", "task"])
def test_a_condition_that_cannot_be_asked_is_refused_in_a_sentence(shared_spark, where):
    with pytest.raises(Refused, match=f"--where '{where}' is no valid condition"):
        chosen(attempts(shared_spark), where)


def test_nor_does_pyspark_log_a_stack_beside_the_sentence(shared_spark):
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append
    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(handler)

    with pytest.raises(Refused, match="is no valid condition"):
        chosen(attempts(shared_spark), "no_such_column = 1")

    logger.removeHandler(handler)
    assert told == []


def test_a_condition_that_fails_on_a_row_is_refused_in_a_sentence(shared_spark, store):
    frame = attempts(shared_spark, an_attempt(1, **FAILED))

    with pytest.raises(Refused, match="--where fails on a row"):
        replay(chosen(frame, "cast(queue as int) = 1"), "again", store)


def test_signatures_and_times_can_be_asked_for(shared_spark):
    frame = attempts(
        shared_spark,
        an_attempt(1, **FAILED, error="Gone: 7"),
        an_attempt(2, **FAILED, error="Gone: 8", ended_at=at(90)),
        an_attempt(3, **FAILED, error="Full"),
    )

    assert chosen(frame, "signature = 'Gone: #' and run > 60").count() == 1


def test_a_replay_is_sealed_or_refused_where_the_app_encrypts(
    shared_spark, store, sqlite_url, tmp_path, monkeypatch
):
    """Of jobs that were stored in clear text, before the app had a key ring, and of sealed ones."""
    sealed = '{"to":{"$sealed":"0011aabb.j.xyz"}}'
    frame = attempts(
        shared_spark, an_attempt(1, **FAILED), an_attempt(2, **FAILED | {"arguments": sealed})
    )
    app = App(broker=store, keys=KeyRing(KEY))
    app.task(name="echo")(lambda text: None).enqueue("x")

    refused = replay(chosen(frame, "true"), "again", store)
    with pytest.raises(Refused, match="which this Python process of Spark does not have"):
        replay(chosen(frame, "true"), "again", app.broker)
    keys = tmp_path / "shop.key"
    keys.write_text(base64.urlsafe_b64encode(KEY).decode())
    keys.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setenv("PENSTOCK_KEY_FILE", str(keys))
        penstock.spark.attach(shared_spark, url=sqlite_url)
        done = replay(chosen(frame, "true"), "again", app.broker)
    penstock.spark.attach(shared_spark, url=sqlite_url)  # without it, for other tests

    assert "its app encrypts its jobs, and there is no key" in refused.reasons["job-1"]
    assert refused.reasons["job-2"] == "its arguments are encrypted"
    assert (refused.enqueued, done.enqueued, done.refused) == (0, 1, 1)
    assert b"$sealed" in store.get(lasting_id("replay", "again", "job-1")).body


def test_the_driver_holds_none_of_the_jobs(shared_spark, store, monkeypatch):
    """Issue 17: Spark's tasks enqueue them, each those of its rows."""
    frame = attempts(shared_spark, *(an_attempt(n, **FAILED) for n in range(1, 41)))
    monkeypatch.setattr(store, "enqueue", None)  # of this process alone

    done = replay(chosen(frame, "true"), "again", store)

    assert (done.found, done.enqueued) == (40, 40)
    assert sum(count.ready for count in store.count()) == 40
