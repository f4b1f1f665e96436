"""Gauge: where the jobs of each queue stand, once a minute, whoever looks."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim, end_all, settle, some_jobs

pytestmark = pytest.mark.scope(of="bucket")


def gauges(broker: Any) -> list[tuple[float, dict[str, Any]]]:
    """The minutes and what their gauges say, zeros left out."""
    return [
        (
            row.at,
            {
                name: value
                for name, value in msgspec.json.decode(row.data).items()
                if value not in {0, None}
            },
        )
        for row in broker.history()
        if row.kind == "gauge"
    ]


def test_a_gauge_says_where_the_jobs_of_a_queue_stand(broker, clock):
    """A51, DESIGN 4: ready, running and oldest, so that an outage shows even when nothing ends."""
    broker.enqueue(some_jobs(clock, 3, queue="mail"))
    clock.advance(seconds=30)
    broker.enqueue(some_jobs(clock, 2, "media:resize", queue="mail"))
    broker.enqueue([a_job(clock, queue="mail", run_at=clock.now() + 600)])
    broker.enqueue([a_job(clock, queue="films", key="one")])
    broker.put(Rule(RuleKind.PAUSE, queue="films"))
    [taken] = claim(broker, queues=("mail",))
    clock.advance(seconds=40)
    minute = clock.now() // 60 * 60

    assert broker.gauge() == 2

    films, mail = gauges(broker)
    assert films == (minute, {"queue": "films", "paused": 1})
    said = {"queue": "mail", "ready": 4, "scheduled": 1, "running": 1}
    oldest = mail[1].pop("oldest")
    assert mail == (minute, said)
    assert abs(oldest - 70.0) < 0.01
    assert [row.queue for row in broker.history()][-2:] == ["films", "mail"]
    assert settle(broker, taken, failed("x"))


@pytest.mark.parametrize(
    "held",
    [{"queue": "mail"}, {"task": "mail:send"}, {"key": "ada"}, {"tag": ("of", "ada")}],
    ids=["queue", "task", "key", "tag"],
)
def test_the_age_of_the_oldest_job_leaves_out_what_is_paused(broker, clock, held):
    """B55: nobody is late with what is not to run; a block holds back as a pause does."""
    mail = {"queue": "mail", "task": "mail:send"}
    broker.enqueue([a_job(clock, key="ada", tags={"of": "ada"}, **mail)])
    if "key" not in held and "tag" not in held:
        broker.enqueue([a_job(clock, **mail)])  # a plain one
    clock.advance(seconds=20)
    broker.enqueue([a_job(clock, "media:resize", queue="other"), a_job(clock, queue="other")])
    if "key" in held or "tag" in held:
        broker.enqueue([a_job(clock, key="bob", **mail)])
    clock.advance(seconds=40)
    broker.put(Rule(RuleKind.PAUSE, **held))

    broker.gauge()
    ages = {row["queue"]: row.get("oldest") for _, row in gauges(broker)}
    assert ages.pop("other") == pytest.approx(40, abs=0.01)
    by_job = "key" in held or "tag" in held
    assert ages == {"mail": pytest.approx(40, abs=0.01) if by_job else None}

    broker.clear(Rule, Rule(RuleKind.PAUSE, **held).id)
    broker.put(Rule(RuleKind.BLOCK, **held, until=clock.now() + 90))
    clock.advance(seconds=60)
    broker.gauge()
    mails = [row.get("oldest") for _, row in gauges(broker) if row["queue"] == "mail"]
    assert mails[-1] == (pytest.approx(100, abs=0.01) if by_job else None)
    clock.advance(seconds=60)
    broker.gauge()
    mails = [row.get("oldest") for _, row in gauges(broker) if row["queue"] == "mail"]
    assert mails[-1] == pytest.approx(180, abs=0.01)


def test_it_is_written_once_a_minute_however_many_ask(broker, clock):
    """Leaderless: the store decides who comes first."""
    broker.enqueue(some_jobs(clock, 1))
    clock.advance(seconds=60 - clock.now() % 60)
    written: list[int] = []
    askers = [threading.Thread(target=lambda: written.append(broker.gauge())) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()

    assert sorted(written) == [0] * 7 + [1]
    clock.advance(seconds=59)
    assert broker.gauge() == 0
    clock.advance(seconds=1)
    assert broker.gauge() == 1
    assert len(gauges(broker)) == 2


def test_a_queue_that_emptied_is_gauged_once_more(broker, clock):
    """So that a gap after anything but zeros is a time without workers."""
    broker.enqueue(some_jobs(clock, 2))
    broker.gauge()
    end_all(broker, succeeded())
    for _ in range(3):
        clock.advance(seconds=60)
        broker.gauge()

    first, last = gauges(broker)
    assert first[1]["ready"] == 2
    assert last == (first[0] + 60, {"queue": "default"})


def test_an_empty_store_is_not_written_to(broker):
    assert broker.gauge() == 0
    assert broker.history() == []


def test_people_who_look_at_the_last_rows_see_none(broker, clock):
    job = a_job(clock)
    broker.enqueue([job])
    broker.act("cancel", [job.id])
    broker.enqueue(some_jobs(clock, 1))
    assert broker.gauge() == 1

    assert [row.kind for row in broker.history(after=None, limit=5)] == ["cancel"]


def test_a_clock_that_was_set_back_for_long_does_not_stop_them(broker, clock):
    broker.enqueue(some_jobs(clock, 1))
    clock.advance(seconds=86400)
    broker.gauge()
    clock.jump(seconds=-80000)

    assert broker.gauge() == 1
