"""Failed attempts in the log of a program that runs a worker in its own process."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from penstock import App, Job, Retry
from penstock.job import Outcome, State, failed, lapsed
from penstock.worker import failure_log
from penstock.worker.failure_log import WHOLE_PER_SECOND, FailureLog
from tests.workers import drain


def records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if hasattr(record, "job_id")]


def test_a_program_gets_ordinary_records_with_what_failed(
    store_app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @store_app.task(name="mail:send", queue="mail", retry=Retry(limit=1, delay=0))
    def send(to: str) -> None:
        raise ValueError(f"no such customer: {to}\nasked twice")

    handle = send.enqueue("ada")
    drain(store_app)

    first, last = records(caplog)
    assert [record.levelno for record in (first, last)] == [logging.WARNING, logging.ERROR]
    assert first.name == "penstock.worker"
    told = vars(first)
    assert (told["task"], told["job_id"], told["attempt"]) == ("mail:send", handle.id, 1)
    assert (told["queue"], told["exception"], told["error"]) == (
        "mail",
        "ValueError",
        "no such customer: ada",
    )
    assert told["retry_at"] is not None
    assert vars(last)["retry_at"] is None
    text = logging.Formatter("%(levelname)s %(message)s").format(last)
    assert text.startswith("ERROR mail:send failed: ValueError: no such customer: ada (job ")
    assert "\nTraceback (most recent call last):\n" in text
    assert text.endswith("ValueError: no such customer: ada\nasked twice")


def test_a_flood_is_counted_and_not_dropped(
    store_app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @store_app.task(name="flood")
    def flood(n: int) -> None:
        raise ValueError(f"number {n}")

    @store_app.task(name="other")
    def other() -> None:
        raise KeyError("other")

    flood.enqueue_many([(n,) for n in range(1000)])
    other.enqueue()
    drain(store_app)

    more = [vars(record)["more"] for record in caplog.records if hasattr(record, "more")]
    whole = [record for record in records(caplog) if vars(record)["task"] == "flood"]
    assert len(whole) + sum(more) == 1000
    assert more
    assert [vars(record)["task"] for record in records(caplog)].count("other") == 1


def test_the_count_of_a_flood_is_told_in_time(
    store_app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(failure_log, "monotonic", lambda: now)
    log, job = FailureLog(store_app), failing_job(store_app)
    outcome = failed("ValueError: boom")
    for _ in range(WHOLE_PER_SECOND + 7):
        log.log(job, outcome)
    assert log.due_at == 101.0

    now = 101.5
    log.log(job, outcome)

    assert len(records(caplog)) == WHOLE_PER_SECOND + 1
    [count] = [record for record in caplog.records if hasattr(record, "more")]
    assert count.levelno == logging.ERROR
    assert count.getMessage().startswith("7 more attempts at fails failed in 2 s with ValueError; ")


@pytest.mark.parametrize(
    ("lapses", "outcome", "level"),
    [
        (0, lapsed(), logging.WARNING),
        (2, lapsed(), logging.ERROR),
        (0, Outcome(State.READY, "later", error="not yet"), None),
        (0, Outcome(State.SUCCEEDED), None),
        (0, Outcome(State.READY, "repeat", failures=-2), None),
    ],
)
def test_only_failures_and_lapses_are_logged(
    store_app: App,
    caplog: pytest.LogCaptureFixture,
    lapses: int,
    outcome: Outcome,
    level: int | None,
) -> None:
    job = msgspec.structs.replace(failing_job(store_app), lapses=lapses)

    FailureLog(store_app).log(job, outcome)

    assert [record.levelno for record in records(caplog)] == ([] if level is None else [level])


def failing_job(app: App) -> Job[Any]:
    @app.task(name="fails")
    def fails() -> None: ...

    return fails.job()
