"""The statistics that are written with the gauges: what ended in a minute, and in longer spans."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from penstock.broker.histogram import percentile
from penstock.broker.span_stats import SPANS, SpanStats, TaskSpan
from penstock.broker.views import MEASURED
from penstock.job import failed, succeeded, try_again
from penstock.testing.conformance.factories import begun, claim, settle, some_jobs

pytestmark = pytest.mark.scope(of="bucket")

HOUR = 3600.0


def spans(broker: Any, kind: str = "minute") -> list[SpanStats]:
    """The rows of a kind, those of one span added up."""
    found: dict[float, SpanStats] = {}
    for row in broker.history(None, 1000, kind=kind):
        span = msgspec.json.decode(row.data, type=SpanStats)
        assert SPANS[span.seconds] == kind
        assert row.at == span.at
        found.setdefault(span.at, SpanStats(at=span.at, seconds=span.seconds)).add(span)
    return [span for _, span in sorted(found.items())]


def at_a_full_hour(clock: Any) -> float:
    clock.advance(seconds=HOUR - clock.now() % HOUR)
    return clock.now()


def end(
    broker: Any, clock: Any, jobs: int, outcome: Any, *, took: float = 2.0, **fields: Any
) -> None:
    """So many attempts that were due at once, began after a second, and took so long."""
    broker.enqueue(some_jobs(clock, jobs, **fields))
    clock.advance(seconds=1)
    for job in claim(broker, limit=jobs):
        began = clock.now()
        clock.advance(seconds=took)
        assert settle(broker, job, begun(outcome, began))


def test_what_ended_is_counted_by_task_and_worker(broker, clock):
    start = at_a_full_hour(clock)
    end(broker, clock, 3, succeeded(), queue="mail")
    end(broker, clock, 1, failed("boom"), queue="mail")
    clock.advance(seconds=60)

    broker.gauge()

    [first, *_] = spans(broker)
    [task] = first.tasks
    assert first.at == start
    assert (task.queue, task.succeeded, task.failed, task.again) == ("mail", 3, 1, 0)
    assert task.ran == pytest.approx(8.0)
    assert percentile(task.run, 0.5) == pytest.approx(2.0, rel=0.02)
    assert sum(task.wait.values()) == 4
    [worker] = first.workers
    assert (worker.worker, worker.ended, worker.failed) == ("worker-1", 4, 1)


def test_an_attempt_is_counted_once_and_in_the_minute_in_which_it_ended(broker, clock):
    start = at_a_full_hour(clock)
    end(broker, clock, 2, succeeded())
    broker.gauge()
    clock.advance(seconds=180)
    end(broker, clock, 1, succeeded())
    clock.advance(seconds=300)

    for _ in range(3):
        broker.gauge()
        clock.advance(seconds=60)

    counted = {span.at - start: sum(task.ended for task in span.tasks) for span in spans(broker)}
    assert {at: ended for at, ended in counted.items() if ended} == {0: 2, 180: 1}


def test_longer_spans_follow_when_they_are_over(broker, clock):
    start = at_a_full_hour(clock)
    for _ in range(13):
        end(broker, clock, 1, succeeded())
        clock.advance(seconds=297)
        broker.gauge()

    tens, hours = spans(broker, "ten_minutes"), spans(broker, "hour")

    assert [(span.at - start, sum(task.ended for task in span.tasks)) for span in tens] == [
        (600.0 * number, 2) for number in range(6)
    ]
    assert [(span.at, sum(task.ended for task in span.tasks)) for span in hours] == [(start, 12)]
    [task] = hours[0].tasks
    assert sum(task.run.values()) == 12


def test_one_that_nothing_follows_is_written_all_the_same_and_then_there_is_silence(broker, clock):
    at_a_full_hour(clock)
    end(broker, clock, 1, succeeded())
    for _ in range(70):
        clock.advance(seconds=60)
        broker.gauge()
    rows = len(broker.history("0", 1000))

    assert len(spans(broker, "hour")) == 1
    for _ in range(70):
        clock.advance(seconds=60)
        broker.gauge()
    assert len(broker.history("0", 1000)) == rows


def test_jobs_that_run_again_are_told_apart(broker, clock):
    at_a_full_hour(clock)
    end(broker, clock, 1, try_again("boom", clock.now() + 600))
    clock.advance(seconds=60)

    broker.gauge()

    assert [task.again for span in spans(broker) for task in span.tasks] == [1]


def test_where_jobs_stood_is_in_it_as_well(broker, clock):
    at_a_full_hour(clock)
    broker.enqueue(some_jobs(clock, 3, queue="mail"))
    clock.advance(seconds=30)
    broker.gauge()

    [span] = spans(broker)
    [queue] = span.queues
    assert (queue.queue, queue.ready, queue.running, round(queue.oldest)) == ("mail", 3, 0, 30)


def test_a_worker_that_starts_is_marked_and_so_is_new_code(broker, clock):
    at_a_full_hour(clock)
    broker.enqueue(some_jobs(clock, 9))
    claim(broker, code="one", started_at=clock.now())
    broker.gauge()
    clock.advance(seconds=61)
    claim(broker, worker="worker-2", code="two", started_at=clock.now() - 1, lease=600.0)
    broker.gauge()

    last = spans(broker)[-1]
    assert (last.started, last.code) == (1, ["two"])


def test_many_who_ask_at_once_count_nothing_twice(broker, clock):
    at_a_full_hour(clock)
    end(broker, clock, 5, succeeded())
    clock.advance(seconds=60)
    askers = [threading.Thread(target=broker.gauge) for _ in range(6)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()

    assert [sum(task.ended for task in span.tasks) for span in spans(broker) if span.tasks] == [5]


def test_people_who_read_the_history_do_not_see_them(broker, clock):
    at_a_full_hour(clock)
    end(broker, clock, 1, succeeded())
    clock.advance(seconds=60)
    broker.gauge()

    assert {row.kind for row in broker.history("0", 100)} & set(MEASURED)
    assert not {row.kind for row in broker.history(None, 100)} & set(MEASURED)


def test_of_very_many_series_those_with_the_most_attempts_are_kept(clock):
    span = SpanStats(
        at=0.0, tasks=[TaskSpan("mail", f"mail:{number}", number) for number in range(300)]
    )

    kept = span.bounded()

    assert (len(kept.tasks), kept.left_out) == (200, 100)
    assert min(task.succeeded for task in kept.tasks) == 100
