"""Alerts: what is wrong, when it is told, and what of penstock.toml is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.gauge import Gauge
from penstock.broker.views import Count, WorkerRow
from penstock.errors import Refused, StoreUnreachable
from penstock.job import failed, succeeded
from penstock.operate.alert_watch import AlertWatch
from penstock.operate.alerts import (
    FINE_SECONDS,
    Alert,
    AlertFacts,
    AlertFault,
    AlertSettings,
    AlertState,
    faults,
    parse_alerts,
    read_facts,
)
from penstock.operate.refusals import NotFound
from penstock.operate.trends import read_trend
from penstock.testing.conformance.factories import begun, claim, settle, some_jobs
from tests.test_trends import NOW, Rows, minute
from tests.webhook import Webhook, webhook

FILE = Path("/shop/penstock.toml")
MAIL = AlertFault("mail", "mail: late")
DEEP = Alert(name="deep", queue="mail", depth=2)


def facts(ready: int = 0, **given) -> AlertFacts:
    whole = {
        "now": NOW,
        "counts": {"mail": Count("mail", "", ready)},
        "workers": [],
        "gauges": {},
        "trend": {},
        **given,
    }
    return AlertFacts(**whole)


def sentences(alert: Alert, given: AlertFacts) -> list[str]:
    return [fault.sentence for fault in faults(alert, given)]


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


# What is wrong


def test_more_jobs_than_may_be_ready():
    assert sentences(DEEP, facts(2)) == []
    assert sentences(DEEP, facts(3)) == ["mail: 3 jobs are ready, more than 2"]


def test_an_alert_without_a_queue_watches_each():
    alert = Alert(name="deep", depth=2)
    counts = {name: Count(name, "", ready) for name, ready in (("a", 3), ("b", 1), ("c", 9))}

    found = faults(alert, facts(counts=counts))

    assert [fault.queue for fault in found] == ["a", "c"]


def test_the_oldest_due_job_waits_as_its_last_gauge_says_and_longer_where_nobody_gauges():
    alert = Alert(name="late", queue="mail", wait=300)
    late, early = Gauge("mail", 1, oldest=301), Gauge("mail", 1, oldest=200)

    assert sentences(alert, facts(1, gauges={"mail": (NOW - 60, late)})) == [
        "mail: the oldest due job waits for 5 min 1 s"
    ]
    assert sentences(alert, facts(1, gauges={"mail": (NOW - 60, early)})) == []
    assert sentences(alert, facts(1, gauges={"mail": (NOW - 200, early)})) == [
        "mail: the oldest due job waits for 6 min 40 s"
    ]
    assert sentences(alert, facts(0, gauges={"mail": (NOW - 200, late)})) == []  # it ran since
    assert sentences(alert, facts(1)) == []


def test_a_failure_rate_is_of_the_last_ten_minutes_and_of_enough_attempts():
    alert = Alert(name="failing", queue="mail", failure_rate=0.2)

    def of(ended: int, bad: int, ago: int = 1) -> list[str]:
        row = minute(ago, ended)
        for task in row.tasks:
            task.succeeded, task.failed = ended - bad, bad
        return sentences(alert, facts(trend={"mail": read_trend(Rows(minute=[row]), NOW)}))

    assert of(100, 21) == ["mail: 21% of 100 attempts failed within 10 min"]
    assert of(100, 20) == []
    assert of(19, 19) == []
    assert of(100, 90, ago=12) == []


def test_jobs_that_no_live_worker_serves():
    alert = Alert(name="nobody", queue="mail", no_worker=True)
    other = WorkerRow(id="w", queues=("other",), alive=True)
    dead = WorkerRow(id="d", queues=None, alive=False)
    one_job = WorkerRow(id="j", queues=(), alive=True)

    assert sentences(alert, facts(2, workers=[other, dead, one_job])) == [
        "mail: 2 jobs are ready, and no live worker serves the queue"
    ]
    assert sentences(alert, facts(2, workers=[WorkerRow(id="w", alive=True)])) == []
    assert sentences(alert, facts(0)) == []


# When it is told


def test_it_is_told_once_again_after_a_while_and_when_it_is_over():
    state = AlertState(repeat=3600)

    def look(at: float, found: list[AlertFault]) -> str:
        kind = state.due(found, at)
        if kind:
            state.sent(kind, at)
        return kind

    assert look(0, []) == ""
    assert look(30, [MAIL]) == "firing"
    assert [look(at, [MAIL]) for at in (60, 3629, 3630, 3660)] == ["", "", "still", ""]
    assert look(3700, []) == ""
    assert look(3730, [MAIL]) == ""  # it came back at once: the same alert
    assert look(3760, []) == ""
    assert look(3760 + FINE_SECONDS - 1, []) == ""
    assert look(3760 + FINE_SECONDS, []) == "over"
    assert look(4000, []) == ""
    assert look(4030, [MAIL]) == "firing"


def test_what_nobody_heard_of_is_told_until_it_arrives_and_is_never_over():
    state = AlertState()

    assert [state.due([MAIL], at) for at in (0, 30)] == ["firing", "firing"]
    assert [state.due([], at) for at in (60, 60 + FINE_SECONDS)] == ["", ""]
    assert state.since is None


def test_a_message_is_sent_says_what_helps_and_comes_again_only_when_it_is_over(
    hook, memory_broker, clock
):
    watch = AlertWatch(AlertSettings((DEEP,), hook.address), lambda: memory_broker, "the shop")
    jobs = some_jobs(clock, 3, queue="mail")
    watch.check()
    memory_broker.enqueue(jobs)
    for _ in range(3):
        watch.check()
        clock.advance(seconds=30)
    memory_broker.act("cancel", [job.id for job in jobs])
    for _ in range(6):
        watch.check()
        clock.advance(seconds=30)

    first, second = hook.take(), hook.take()

    assert hook.heard.empty()
    assert first["state"], first["alert"] == ("firing", "deep")
    assert first["text"] == "deep: mail: 3 jobs are ready, more than 2 (the shop)"
    assert first["commands"] == ["penstock why queue:mail"]
    assert second["text"] == "deep is over, after 3 min 30 s (the shop)"


@pytest.mark.parametrize("status", [500, 302])
def test_what_did_not_arrive_is_sent_again_and_the_address_is_nowhere(
    hook, memory_broker, clock, caplog, status
):
    caplog.set_level(logging.INFO, "penstock.alerts")
    watch = AlertWatch(AlertSettings((DEEP,), hook.address), lambda: memory_broker)
    memory_broker.enqueue(some_jobs(clock, 3, queue="mail"))
    hook.answer = status
    watch.check()
    [row] = watch.rows()
    watch.check()
    hook.answer = 204
    watch.check()
    watch.check()

    assert [hook.take()["state"] for _ in range(3)] == ["firing"] * 3
    assert hook.heard.empty()
    assert row.undelivered == f"the webhook at 127.0.0.1 answered {status}"
    assert watch.rows()[0].undelivered == ""
    assert len([line for line in caplog.messages if "not delivered" in line]) == 1
    assert "hidden-part" not in caplog.text


def test_a_webhook_that_is_not_there_is_a_sentence(memory_broker, clock):
    with webhook() as gone:
        address = gone.address
    watch = AlertWatch(AlertSettings((DEEP,), address), lambda: memory_broker)

    assert watch.test("deep").startswith("the webhook at 127.0.0.1 cannot be reached: ")
    with pytest.raises(NotFound, match="no alert is called 'dep'; there is: deep"):
        watch.test("dep")


def test_it_goes_on_when_the_store_is_back(hook, memory_broker, clock):
    away = [True]

    def broker():
        if away.pop():
            away.append(False)
            raise StoreUnreachable("the store does not answer")
        away.append(False)
        return memory_broker

    memory_broker.enqueue(some_jobs(clock, 3, queue="mail"))
    watch = AlertWatch(AlertSettings((DEEP,), hook.address), broker)
    with pytest.raises(StoreUnreachable):
        watch.check()
    watch.start()

    assert hook.take()["alert"] == "deep"
    watch.close()


def test_facts_are_those_of_the_store(memory_broker, clock):
    alert = Alert(name="bad", failure_rate=0.5)
    memory_broker.enqueue(some_jobs(clock, 40, queue="mail"))
    clock.advance(seconds=60)
    memory_broker.gauge()
    for number in range(30):
        [job] = claim(memory_broker)
        outcome = failed("no") if number % 3 else succeeded()
        settle(memory_broker, job, begun(outcome, clock.now()))
    clock.advance(seconds=60)
    memory_broker.gauge()
    clock.advance(seconds=60)

    found = sentences(alert, read_facts(memory_broker, [alert]))

    assert found == ["mail: 67% of 30 attempts failed within 10 min"]


# What is set


def test_settings_are_read_as_they_are_written():
    settings = parse_alerts(
        {
            "webhook": "https://hooks.example.org/T0",
            "repeat": "30m",
            "late": {"queue": "mail", "wait": "5m"},
            "any": {"depth": 10, "failure_rate": 0.25, "no_worker": True},
        },
        FILE,
    )

    assert settings.repeat == 1800
    assert settings.alerts == (
        Alert(name="late", queue="mail", wait=300),
        Alert(name="any", depth=10, failure_rate=0.25, no_worker=True),
    )
    assert settings.alerts[1].text == (
        "in any queue: more than 10 jobs are ready or more than 25% of the attempts fail"
        " or jobs are ready and no worker is there"
    )


def test_the_address_comes_from_the_environment_or_from_a_private_file(monkeypatch, tmp_path):
    file = tmp_path / "hook"
    file.write_text("https://hooks.example.org/file\n")
    table = {"webhook_file": "hook", "late": {"wait": "5m"}}
    with pytest.raises(Refused, match="can be read by others"):
        parse_alerts(table, tmp_path / "penstock.toml")
    file.chmod(0o600)

    assert parse_alerts(table, tmp_path / "penstock.toml").webhook.endswith("/file")
    monkeypatch.setenv("PENSTOCK_ALERT_WEBHOOK", "https://hooks.example.org/env")
    assert parse_alerts(table, FILE).webhook.endswith("/env")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"late": 5}, r"write a table \[alerts.late\]"),
        ({"late": {"wait": 5}}, 'a duration, as wait = "5m"'),
        ({"late": {"wait": "soon"}}, "'soon' is not a duration"),
        ({"late": {"waits": "5m"}}, "there is no 'waits'; there are depth, failure_rate,"),
        ({"late": {"depth": "many"}}, "Expected `int | null`"),
        ({"late": {"failure_rate": 20.0}}, "a share, as 0.2 for 20 %"),
        ({"late": {"queue": "mail"}}, "watches nothing: give wait, depth"),
        ({"late": {"wait": "5m"}, "repeat": 3}, 'a duration, as repeat = "1h"'),
        ({"late": {"wait": "5m"}, "webhook": "ftp://me:hidden@x"}, "begins with https://"),
        ({"late": {"wait": "5m"}, "webhook": None}, "has no webhook"),
    ],
)
def test_what_cannot_be_understood_is_refused(fields, sentence):
    table = {"webhook": "https://hooks.example.org/T0", **fields}

    with pytest.raises(Refused, match=sentence) as refused:
        parse_alerts(table, FILE)

    assert "hidden" not in str(refused.value)
