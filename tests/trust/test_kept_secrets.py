"""`keep_secrets` with a key ring: a retry works without asking, and then nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import App, KeyRing, Refused
from penstock.broker.filter import Filter
from penstock.brokers import open_broker
from penstock.enqueue.copy import enqueue_copy
from penstock.operate.actions import Actions
from penstock.operate.roles import Person, Role
from penstock.operate.to_json import event_json, job_json
from penstock.testing import Clock
from penstock.testing.conformance.bulk.test_scan import scanned
from tests.trust.test_encryption import KEY
from tests.trust.test_secrets import CANARY, _postgres_rows, _sqlite_rows
from tests.workers import drain

SPAN = timedelta(hours=2)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture
def app(url: str, clock: Clock) -> Iterator[App]:
    app = App(broker=open_broker(url, clock), keys=KeyRing(KEY))
    yield app
    app.close()
    app.broker.close()


@pytest.fixture
def sealed_rows(url: str, app: App) -> Callable[[], int]:
    """How many rows of the store have a sealed value."""

    def count() -> int:
        if url == "memory:":
            store: Any = app.broker
            return sum(b"$sealed" in job.body for job in store.store._store.jobs.values())
        if url.startswith("sqlite"):
            rows = _sqlite_rows(url.removeprefix("sqlite:///"))
        else:
            rows = _postgres_rows(url)
        seen = [repr(row) for _, row in rows]
        assert not [row for row in seen if CANARY in row]
        return sum("$sealed" in row for row in seen)

    return count


def a_failed_export(app: App) -> str:
    @app.task(name="export", secret=("token",), keep_secrets=SPAN)
    def export(token: str) -> str:
        if app.clock.now() < started + 60:
            raise OSError(token)
        return token[-6:]

    started = app.clock.now()
    handle = export.enqueue(CANARY)
    drain(app)
    return handle.id


def test_a_retry_needs_no_secrets_for_the_span(app, clock):
    job = a_failed_export(app)
    clock.advance(SPAN.total_seconds() - 1)
    app.broker.prune(clock.now() - 86400)

    assert Actions(app.broker, Person("ada", Role.ADMIN)).gone_secrets(job) == []
    assert app.broker.act("retry", [job]) == [job]
    drain(app)

    assert app.handle(job).result(timeout=0) == CANARY[-6:]


def test_after_the_span_no_row_has_them(app, clock, sealed_rows):
    job = a_failed_export(app)
    assert sealed_rows() == 1  # the job's own row, and not the history
    clock.advance(SPAN.total_seconds())

    app.broker.prune(clock.now() - 86400)

    assert sealed_rows() == 0
    assert app.broker.act("retry", [job]) == []


def test_after_the_span_they_are_gone_although_nothing_was_pruned(app, clock):
    job = a_failed_export(app)
    clock.advance(SPAN.total_seconds())

    assert Actions(app.broker, Person("ada", Role.ADMIN)).gone_secrets(job) == ["token"]
    assert app.broker.act("retry", [job]) == []


def test_the_span_does_not_go_on_for_a_job_that_was_retried(app, clock):
    job = a_failed_export(app)
    assert app.broker.act("retry", [job]) == [job]
    assert b"secrets_until" not in app.broker.get(job).body
    clock.advance(2 * SPAN.total_seconds())
    app.broker.prune(clock.now() - 86400)

    drain(app)

    assert app.handle(job).result(timeout=0) == CANARY[-6:]


def test_nobody_sees_them_meanwhile(app):
    job = a_failed_export(app)

    [found] = app.broker.find(Filter(task=("export",))).jobs
    shown = [msgspec.json.encode(job_json(found))]
    shown += [msgspec.json.encode(event_json(row)) for row in app.broker.history()]
    exported = [scanned(app.broker, table) for table in ("jobs", "attempts")]
    assert [row["id"] for row in exported[0]] == [job]
    shown += [repr(rows).encode() for rows in exported]
    assert not [text for text in shown if CANARY.encode() in text or b"$sealed" in text]
    assert job_json(found)["args"] == {"token": "***"}


def test_a_copy_is_not_given_them(app):
    job = a_failed_export(app)

    with pytest.raises(Refused, match="token is secret"):
        enqueue_copy(app.broker, job, ("ada", ""))


def test_without_a_key_ring_it_is_refused():
    app = App("memory:")

    with pytest.raises(Refused, match=r"task export: keep_secrets .* give the app a key ring"):
        app.task(name="export", secret=("token",), keep_secrets=SPAN)(lambda token: None)
    with pytest.raises(Refused, match="keep_secrets needs secret="):
        App("memory:", keys=KeyRing(KEY)).task(name="x", keep_secrets=60)(lambda token: None)
    for wrong in (0, -1, "1h"):
        with pytest.raises(Refused, match="keep_secrets="):
            App("memory:", keys=KeyRing(KEY)).task(name="x", secret=("token",), keep_secrets=wrong)(
                lambda token: None
            )


def test_a_declared_task_keeps_them_too():
    app = App("memory:", keys=KeyRing(KEY))

    @app.declare("export", secret=("token",), keep_secrets=60)
    def export(token: str) -> None: ...

    bodies = [export.job("x").body, export.options(key="ada").job("x").body]
    assert [msgspec.json.decode(body)["keep_secrets"] for body in bodies] == [60, 60]
