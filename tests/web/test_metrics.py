"""Metrics: what the store can tell truthfully, with a token, in a bounded number of series."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker.filter import Filter
from penstock.job import State, failed, lapsed, put_back, succeeded, try_again
from penstock.testing.conformance.factories import a_job, a_worker, begun, claim, settle, some_jobs
from penstock.web import metrics as module
from penstock.web.access import Role
from tests.web.conftest import Web


@pytest.fixture
def scraped(serve, broker):
    web: Web = serve(broker, metrics=True)
    client = web.client(Role.VIEW)

    def scrape() -> dict[tuple[str, ...], float]:
        answer = client.get("/metrics")
        assert answer.status_code == 200
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    return scrape


def test_metrics_are_off_unless_switched_on(memory_web: Web):
    answer = memory_web.client(Role.VIEW).get("/metrics")

    assert answer.status_code == 404
    assert "--metrics" in answer.json()["error"]


def test_without_a_token_there_are_none(serve, memory_broker):
    assert serve(memory_broker, metrics=True).client().get("/metrics").status_code == 401


def test_what_ended_is_counted_once_from_the_first_scrape_on(scraped, broker, clock):
    broker.enqueue(some_jobs(clock, 10))
    [before] = claim(broker)
    settle(broker, before, begun(succeeded(), clock.now()))
    scraped()
    for number, job in enumerate(claim(broker, limit=6)):
        outcome = [succeeded(), failed("no"), try_again("x", clock.now() + 60)][number % 3]
        settle(broker, job, begun(outcome, clock.now() - 2))

    first, second = scraped(), scraped()

    names = ("default", "mail:send")
    for outcome in ("succeeded", "failed", "again"):
        key = ("penstock_attempts_ended_total", *sorted((*names, outcome)))
        assert (first[key], second[key]) == (2, 2)
    assert first[("penstock_job_run_seconds_count", *names)] == 6
    assert first[("penstock_job_run_seconds_sum", *names)] == pytest.approx(12, abs=0.01)
    assert first[("penstock_job_run_seconds_bucket", "1.0", *names)] == 0
    assert first[("penstock_job_run_seconds_bucket", "5.0", *names)] == 6
    assert first[("penstock_metrics_behind",)] == 0


def test_where_jobs_stand_is_what_count_says(scraped, broker, clock):
    broker.enqueue(some_jobs(clock, 5) + some_jobs(clock, 2, queue="slow"))
    claim(broker, limit=1)
    broker.gauge()

    found = scraped()

    for count in broker.count():
        for place in ("ready", "running", "failed"):
            key = ("penstock_queue_depth", *sorted((count.queue, count.task, place)))
            assert found[key] == getattr(count, place)
    assert found["penstock_workers", "busy"] == 1
    assert ("penstock_queue_oldest_ready_seconds", "slow") in found
    assert found["penstock_gauged_timestamp_seconds",] > 0


def test_a_worker_that_was_gone_is_counted(scraped, broker, clock):
    broker.enqueue(some_jobs(clock, 1))
    scraped()
    claim(broker, worker="gone-1", lease=15.0)
    clock.advance(seconds=60)
    broker.recover()

    assert scraped()["penstock_leases_expired_total", "default", "mail:send"] == 1


def test_what_workers_sent_too_late_is_counted_on_from_what_they_say(scraped, broker):
    def said(**stale: int) -> float:
        broker.renew([a_worker(id=name, stale=count) for name, count in stale.items()])
        return scraped()["penstock_stale_settlements_total",]

    assert said(one=5) == 0  # before the first scrape
    assert said(one=7) == 2
    assert said(one=7, two=3) == 5
    assert said(one=8, two=3) == 6
    assert said(one=0, two=3) == 6  # it began anew, and that is no reason to count down
    assert said(one=1, two=3) == 7


def test_beyond_so_many_pairs_the_rest_is_added_up_and_said(scraped, broker, clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 3)
    scraped()
    queues = [f"q{number}" for number in range(8)]
    broker.enqueue([a_job(clock, queue=queue) for queue in queues for _ in range(2)])
    for job in claim(broker, limit=8):
        settle(broker, job, begun(succeeded(), clock.now()))

    found = scraped()

    ended = {key: value for key, value in found.items() if key[0].startswith("penstock_attempts")}
    assert len(ended) == 4
    assert sum(ended.values()) == 8
    depth = {key: value for key, value in found.items() if key[0] == "penstock_queue_depth"}
    assert sum(value for key, value in depth.items() if "ready" in key) == 8
    assert len({tuple(part for part in key if part.startswith("q")) for key in depth}) == 4
    assert found["penstock_metrics_folded_pairs",] == len(broker.count()) - 3
    assert found["penstock_metrics_folded_attempts_total",] > 0


def test_hostile_names_break_no_line(scraped, broker, clock):
    hostile = 'a"b\\c}{d,e="'
    broker.enqueue([a_job(clock, hostile, queue="<script>")])

    found = scraped()

    assert found[("penstock_queue_depth", *sorted(("<script>", hostile, "ready")))] == 1


def test_every_end_is_counted_with_its_reason(scraped, broker, clock):
    scraped()
    broker.enqueue(some_jobs(clock, 6))
    outcomes = [
        succeeded(),
        failed("no"),
        try_again("x", clock.now() + 60, "timeout"),
        put_back("later"),
        lapsed(),
    ]
    jobs = claim(broker, limit=5)
    for job, outcome in zip(jobs, outcomes, strict=True):
        settle(broker, job, begun(outcome, clock.now()))
    [left] = broker.find(Filter(state=(State.READY,)), limit=1).jobs
    broker.act("cancel", [left.id])

    found = scraped()

    for outcome, reason in (
        ("succeeded", "completed"),
        ("failed", "error"),
        ("again", "timeout"),
        ("again", "later"),
        ("again", "crashed"),
        ("cancelled", "cancelled"),
    ):
        labels = sorted(("default", outcome, reason))
        assert found[("penstock_attempt_reasons_total", *labels)] == 1, (outcome, reason)


def test_put_backs_are_counted_on_from_what_workers_say(scraped, broker):
    def said(**paused: int) -> float:
        rows = [a_worker(id=id, put_back={"mail": {"paused": n}}) for id, n in paused.items()]
        broker.renew(rows)
        return scraped().get(("penstock_put_backs_total", "mail", "paused"), 0)

    assert said(one=5) == 0  # before the first scrape
    assert said(one=7) == 2
    assert said(one=7, two=3) == 5
    assert said(one=1, two=3) == 5  # it began anew, and that is no reason to count down
    assert said(one=2, two=3) == 6


def test_beyond_so_many_reasons_the_rest_is_added_up(scraped, broker, clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_REASONS", 1)
    scraped()
    broker.enqueue([a_job(clock, queue=f"q{number}") for number in range(3)])
    for job in claim(broker, limit=3):
        settle(broker, job, begun(succeeded(), clock.now()))

    found = scraped()

    reasons = {key: n for key, n in found.items() if key[0] == "penstock_attempt_reasons_total"}
    assert sorted(reasons.values()) == [1, 2]
