"""A key ring: what the store has is sealed, and only a program with the key reads it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from penstock import App, JobFailed, KeyRing, Refused, Retry, current_job, wait_for
from penstock.app.encrypted_broker import _AS_IT_IS, EncryptedBroker
from penstock.broker.filter import parse_filter
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.copy import enqueue_copy
from penstock.job import State
from penstock.testing.conformance.factories import a_job, claim
from tests.trust.test_secrets import CANARY, _postgres_rows, _sqlite_rows
from tests.workers import drain

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture
def open_app(url: str) -> Iterator[Callable[..., App]]:
    """Opens the store with a key ring of these keys."""
    opened: list[App] = []

    def open_with(*keys: bytes) -> App:
        app = App(broker=open_broker(url), keys=KeyRing(*keys) if keys else None)
        opened.append(app)
        return app

    yield open_with
    for app in opened:
        app.close()
        app.broker.close()


@pytest.fixture
def places(url: str) -> Callable[[], set[str]]:
    """The tables that have the canary in a live row."""
    read = _postgres_rows if url.startswith("postgres") else _sqlite_rows
    where = url if url.startswith("postgres") else url.removeprefix("sqlite:///")
    return lambda: {table for table, row in read(where) if CANARY in repr(row)}


def test_arguments_results_snapshots_steps_and_events_are_sealed(open_app, places):
    app = open_app(KEY)

    @app.task(name="echo", retry=Retry(limit=1, delay=0))
    def echo(text: str, last: dict[str, str]) -> str:
        job = current_job()
        if job.last_snapshot() is None:
            job.snapshot({"text": text})
            job.step("fetch", lambda: text)
            job.event("seen", text=text)
            job.log.info("it says %s", text)
            raise OSError("again")
        assert job.step("fetch", lambda: "not called again") == text
        assert job.last_snapshot() == {"text": CANARY}
        return text + last["word"]

    handles = [echo.enqueue(CANARY, {"word": CANARY})]
    handles += [echo.options(key="ada").enqueue(CANARY, {"word": ""})]
    echo.enqueue_many([(CANARY, {"word": "!"})] * 3)
    assert places() == set()

    drain(app)

    assert places() == set()
    assert [handle.result(timeout=0) for handle in handles] == [CANARY * 2, CANARY]
    [job] = [row for row in app.broker.history() if row.job == handles[0].id and row.body]
    assert msgspec.json.decode(job.body)["args"] == {"text": CANARY, "last": {"word": CANARY}}
    [seen] = [row for row in app.broker.history(job=handles[0].id) if row.kind == "event"]
    assert CANARY in seen.data.decode()
    assert CANARY in repr(app.broker.notes(handles[0].id, "snapshot"))


def test_flows_signals_schedules_and_transactions_work_with_it(open_app, places):
    app = open_app(KEY)

    @app.task(name="give")
    def give() -> str:
        return CANARY

    @app.task(name="take")
    def take(texts: list[str], said: str) -> str:
        with current_job().transaction():
            pass
        return f"{texts[0]} {said}"

    @app.task(name="spawns")
    def spawns(text: str) -> None:
        current_job().spawn([keep.job(text)])

    @app.task(name="keep")
    def keep(text: str) -> str:
        return text

    handle = take.job([give.job().output], wait_for("go", returns=str).output).enqueue()
    spawns.enqueue(CANARY)
    app.signal("go", CANARY)
    drain(app)
    schedule = app.schedules.put("nightly", keep.options(), every=3600, args=(CANARY,))

    assert handle.result(timeout=0) == f"{CANARY} {CANARY}"
    assert CANARY in repr(schedule.job.body)
    assert places() == set()


def test_secrets_are_deleted_and_given_again(open_app, places):
    app = open_app(KEY)

    @app.task(name="export", secret=("token",))
    def export(user: str, token: str) -> str:
        if token == CANARY:
            raise OSError(token)
        return f"{user} {token}"

    handle = export.enqueue("ada", CANARY)
    drain(app)

    with pytest.raises(JobFailed, match="message not kept"):
        handle.result(timeout=0)
    assert app.broker.act("retry", [handle.id]) == []
    assert app.broker.act("retry", [handle.id], secrets={"token": "new-canary"}) == [handle.id]
    stored = app.broker.store.get(handle.id)
    assert b"new-canary" not in stored.body
    drain(app)
    assert handle.result(timeout=0) == "ada new-canary"


def test_an_old_key_reads_until_it_is_taken_out(open_app, clock):
    before, both, after = open_app(KEY), open_app(OTHER, KEY), open_app(OTHER)
    old, new = (
        a_job(before.clock, body=b'{"args":{"n":1}}'),
        a_job(both.clock, body=b'{"args":{"n":2}}'),
    )
    before.broker.enqueue([old])
    both.broker.enqueue([new])

    assert both.broker.get(old.id).body == old.body
    assert both.broker.get(new.id).body == new.body
    assert b"$sealed" in after.broker.get(old.id).body
    # Claimed by a program that does not have the key yet, a job is put back and not failed.
    assert [job.body for job in claim(after.broker, limit=2)] == [new.body]
    waiting = after.broker.get(old.id)
    assert (waiting.state, waiting.reason, waiting.failures) == (State.READY, "no_key", 0)


def test_a_value_cannot_be_moved_to_another_job_or_argument():
    ring = KeyRing(KEY)
    sealed = ring.seal(b'"hunter2"', "args.token", "job-1")

    assert ring.open(sealed, "args.token", "job-1") == b'"hunter2"'
    assert b"hunter2" not in sealed
    assert sealed != ring.seal(b'"hunter2"', "args.token", "job-1")
    for place, job in (("args.token", "job-2"), ("args.other", "job-1"), ("result", None)):
        with pytest.raises(Refused, match="was changed, or is another job's"):
            ring.open(sealed, place, job)
    with pytest.raises(Refused, match="was changed"):
        ring.open(
            sealed[:-6] + (b"AAAA" if sealed[-6:-2] != b"AAAA" else b"BBBB") + sealed[-2:],
            "args.token",
            "job-1",
        )


def test_what_needs_clear_arguments_is_refused(memory_broker, clock):
    app = App(broker=memory_broker, keys=KeyRing(KEY))

    @app.task(name="find", search=("user",))
    def find(user: str) -> None: ...

    with pytest.raises(Refused, match="search= stores arguments in an index"):
        find.enqueue("ada")
    with pytest.raises(Refused, match="arguments are encrypted"):
        app.broker.find(parse_filter(["arg.user:ada"], clock.now()))
    job = a_job(clock, body=b'{"args":{"n":1}}')
    app.broker.enqueue([job])
    app.broker.act("cancel", [job.id])
    with pytest.raises(Refused, match="its arguments are encrypted"):
        enqueue_copy(memory_broker, job.id, ("", ""))
    enqueue_copy(app.broker, job.id, ("", ""))
    assert (
        app.broker.find(parse_filter(["state:ready"], clock.now()))
        .jobs[0]
        .body.startswith(b'{"args":{"n":1}')
    )


def test_every_verb_is_sealed_or_passed_on():
    """One that is added later is refused until somebody has decided about it."""
    verbs = {name for name in dir(Broker) if not name.startswith("_")}
    verbs |= set(Broker.__annotations__) | {"clock", "traits"}

    assert {
        name for name in verbs if name not in _AS_IT_IS and name not in vars(EncryptedBroker)
    } == set()
    with pytest.raises(AttributeError):
        EncryptedBroker(MemoryBroker(), KeyRing(KEY)).no_such_verb()  # pyright: ignore[reportUnknownMemberType]


def test_wrong_keys_are_refused_and_none_is_shown(monkeypatch):
    for keys in ((), ("short",), (b"x" * 16,), ("not base64 !",)):
        with pytest.raises(Refused, match="key"):
            KeyRing(*keys)
    key = KeyRing.new_key()
    assert key not in repr(KeyRing(key))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(Refused, match=r"penstock-queue\[encryption\]"):
        KeyRing(key)
