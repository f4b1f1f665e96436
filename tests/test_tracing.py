"""Tracing: a span for every call that enqueues, one for every run, and a link between them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import date

import msgspec
import pytest
from opentelemetry import metrics
from opentelemetry import trace as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock import App, Retry, RetryLater, current_job
from penstock.enqueue.tracing import SWITCH, trace
from penstock.errors import Refused
from penstock.schedules.timetable import decide
from tests.workers import drain

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


@pytest.fixture
def spans():
    if not isinstance(api.get_tracer_provider(), TracerProvider):
        api.set_tracer_provider(PROVIDER)
    EXPORTER.clear()

    def ended(kind: SpanKind | None = None):
        return [span for span in EXPORTER.get_finished_spans() if kind in {None, span.kind}]

    return ended


@pytest.fixture
def numbers(monkeypatch):
    """What was measured: the points of each metric, by its name."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)

    def read():
        [resource] = reader.get_metrics_data().resource_metrics
        [scope] = resource.scope_metrics
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}

    return read


@pytest.fixture
def app() -> App:
    made = App("memory:")
    trace(made)
    return made


def test_a_run_links_to_the_call_that_enqueued_it(app, spans):
    @app.task(name="mail:send", queue="mail")
    def send(to: str) -> str:
        return to

    with app.testing() as t:
        handle = send.enqueue("ada@example.org")
        t.drain()

    [sent], [ran] = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert (sent.name, ran.name) == ("send mail", "process mail")
    [link] = ran.links
    assert link.context.span_id == sent.context.span_id
    assert link.context.trace_id == sent.context.trace_id != ran.context.trace_id
    assert ran.parent is None
    assert sent.attributes["messaging.message.id"] == handle.id
    assert ran.attributes["messaging.message.id"] == handle.id
    assert ran.attributes["penstock.task"] == "mail:send"
    assert ran.attributes["penstock.attempt"] == 1
    assert "ada@example.org" not in str(sent.to_json()) + str(ran.to_json())


def test_the_call_is_part_of_the_trace_around_it(app, spans):
    @app.task
    def work() -> None: ...

    with app.testing(), api.get_tracer("caller").start_as_current_span("request") as around:
        work.enqueue()

    [sent] = spans(SpanKind.PRODUCER)
    assert sent.parent.span_id == around.get_span_context().span_id


def test_a_bulk_enqueue_is_one_span_that_every_run_links_to(app, spans):
    @app.task
    def work(n: int) -> None: ...

    with app.testing() as t:
        work.enqueue_many([(n,) for n in range(5)])
        t.drain()

    [sent], runs = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert sent.attributes["messaging.batch.message_count"] == 5
    assert len(runs) == 5
    assert {run.links[0].context.span_id for run in runs} == {sent.context.span_id}


def test_a_flow_is_one_span_that_all_of_its_runs_link_to(app, spans):
    @app.task
    def one() -> int:
        return 1

    @app.task
    def two(n: int) -> int:
        return n + 1

    with app.testing() as t:
        job = two.job(one.job().output)
        with api.get_tracer("caller").start_as_current_span("request") as around:
            job.enqueue()
        t.drain()

    [sent], runs = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert sent.parent.span_id == around.get_span_context().span_id
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert "penstock.task" not in sent.attributes
    assert [run.links[0].context.span_id for run in runs] == [sent.context.span_id] * 2


def test_jobs_of_several_queues_are_one_span_without_a_destination(app, spans):
    @app.task(queue="mail")
    def send() -> None: ...

    @app.task(queue="slow")
    def count(n: int) -> None: ...

    with app.testing() as t:
        app.enqueue([send.job(), *(count.job(n) for n in range(3))])
        t.drain()

    [sent], runs = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert sent.name == "send"
    assert sent.attributes["messaging.batch.message_count"] == 4
    assert len(runs) == 4
    assert {run.links[0].context.span_id for run in runs} == {sent.context.span_id}


def test_what_a_job_spawns_links_to_a_span_of_that_job_s_trace(app, spans):
    @app.task
    def parent() -> None:
        current_job().spawn([child.job(n) for n in range(2)], then=last.job())

    @app.task
    def child(n: int) -> None: ...

    @app.task
    def last() -> None: ...

    with app.testing() as t:
        parent.enqueue()
        t.drain()

    first, spawned = spans(SpanKind.PRODUCER)
    ran, *others = spans(SpanKind.CONSUMER)
    assert ran.links[0].context.span_id == first.context.span_id
    assert spawned.parent.span_id == ran.context.span_id
    assert spawned.attributes["messaging.batch.message_count"] == 3
    assert {run.links[0].context.span_id for run in others} == {spawned.context.span_id}
    assert len(others) == 3


def test_a_schedule_s_jobs_link_to_who_decided_that_they_are_due(app, spans):
    @app.schedule(every=60)
    @app.task
    def tick() -> None: ...

    with app.testing() as t:
        t.clock.advance(seconds=61)
        t.drain()
        app.schedules.run_now(tick.name)
        t.drain()

    sent, runs = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert len(sent) == len(runs) == 2
    assert [run.links[0].context.span_id for run in runs] == [span.context.span_id for span in sent]


def test_a_slot_that_somebody_else_decided_was_not_sent(app, spans):
    @app.task
    def tick() -> None: ...

    with app.testing():
        app.schedules.put("nightly", tick, every=60)
        [kept] = app.schedules.all()
        app.schedules.pause("nightly")
        later = msgspec.structs.replace(kept, decided_until=kept.decided_until - 120)
        assert decide(app.broker, later, app.sending)[1] is False

    assert spans() == []


def test_a_backfill_s_jobs_link_to_the_call(app, spans):
    @app.task
    def report(day: date) -> None: ...

    with app.testing() as t:
        report.backfill("2026-01-01", "2026-01-03")
        t.drain()

    [sent], runs = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert {run.links[0].context.span_id for run in runs} == {sent.context.span_id}


def test_headers_that_a_job_has_stay_beside_the_link(app, spans):
    @app.task
    def work(text: str) -> dict[str, str]:
        return dict(current_job().headers)

    with app.testing() as t:
        handle = work.options(headers={"tenant": "a"}).enqueue('a text with "headers" in it')
        t.drain()
        told = handle.result()

    [sent] = spans(SpanKind.PRODUCER)
    assert told["tenant"] == "a"
    assert f"{sent.context.span_id:016x}" in told["traceparent"]


def test_numbers_of_what_was_sent_and_run_go_to_whoever_provides_a_meter(numbers):
    app = App("memory:")
    trace(app)

    @app.task(name="mail:send", queue="mail", retry=Retry(limit=0))
    def send(n: int) -> None:
        if n == 2:
            raise ValueError(n)

    with app.testing() as t:
        send.enqueue(1)
        send.enqueue_many([(2,), (3,)])
        with pytest.raises(Refused):
            send.options(connection=object()).enqueue(4)
        t.drain()

    found = numbers()
    assert set(found) == {
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.process.duration",
    }
    about = {"messaging.system": "penstock", "messaging.destination.name": "mail"}
    for points in found.values():
        assert all(about.items() <= dict(point.attributes).items() for point in points)
        assert not any("messaging.message.id" in point.attributes for point in points)
    assert [point.value for point in found["messaging.client.sent.messages"]] == [3]
    assert [point.value for point in found["messaging.client.consumed.messages"]] == [3]
    sent = {point.attributes.get("error.type"): point for point in numbers_of(found, "operation")}
    runs = {point.attributes.get("error.type"): point for point in numbers_of(found, "process")}
    assert {kind: point.count for kind, point in sent.items()} == {None: 2, "Refused": 1}
    assert {kind: point.count for kind, point in runs.items()} == {None: 2, "ValueError": 1}


def numbers_of(found, word: str):
    [points] = [each for name, each in found.items() if word in name and "duration" in name]
    return points


def test_async_tasks_and_callers_are_traced_as_well(app, spans):
    @app.task
    async def work() -> str:
        return current_job().headers["traceparent"]

    async def call():
        return await work.enqueue_async()

    with app.testing() as t:
        handle = asyncio.run(call())
        t.drain()
        told = handle.result()

    [sent], [ran] = spans(SpanKind.PRODUCER), spans(SpanKind.CONSUMER)
    assert ran.links[0].context.span_id == sent.context.span_id
    assert f"{sent.context.span_id:016x}" in told


def test_an_error_is_told_by_its_kind_and_never_by_its_words(app, spans):
    @app.task(retry=Retry(limit=0))
    def broken(card: str) -> None:
        raise ValueError(card)

    with app.testing() as t:
        broken.enqueue("4111-1111")
        t.drain()

    [ran] = spans(SpanKind.CONSUMER)
    assert ran.status.status_code is StatusCode.ERROR
    assert ran.attributes["error.type"] == "ValueError"
    assert ran.events == ()
    assert "4111" not in ran.to_json()


def test_a_job_that_is_put_back_is_no_error(app, spans):
    @app.task
    def later() -> None:
        if current_job().attempt == 1:
            raise RetryLater(after=0)

    with app.testing() as t:
        later.enqueue()
        t.drain()

    first, second = spans(SpanKind.CONSUMER)
    assert first.status.status_code is StatusCode.UNSET
    assert first.attributes["penstock.put_back"] is True
    assert "penstock.put_back" not in second.attributes


def test_an_enqueue_that_is_refused_ends_its_span_with_the_error(app, spans):
    @app.task
    def work(n: int) -> None: ...

    with app.testing(), pytest.raises(Refused):
        work.options(connection=object()).enqueue(7)

    [sent] = spans(SpanKind.PRODUCER)
    assert sent.status.status_code is StatusCode.ERROR
    assert not api.get_current_span().get_span_context().is_valid


def test_a_traceparent_of_the_caller_s_own_stays(app, spans):
    own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    @app.task
    def work() -> None: ...

    with app.testing() as t:
        work.options(headers={"traceparent": own}).enqueue()
        t.drain()

    [ran] = spans(SpanKind.CONSUMER)
    assert f"{ran.links[0].context.span_id:016x}" == "00f067aa0ba902b7"


def test_one_that_cannot_be_read_makes_no_link(app, spans):
    @app.task
    def work() -> None: ...

    with app.testing() as t:
        work.options(headers={"traceparent": "nonsense"}).enqueue()
        t.drain()

    [ran] = spans(SpanKind.CONSUMER)
    assert ran.links == ()


def test_it_is_off_unless_switched_on_and_then_imports_nothing(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    assert App("memory:").tracing is None
    monkeypatch.setenv(SWITCH, "0")
    assert App("memory:").tracing is None
    monkeypatch.setenv(SWITCH, "1")
    made = App("memory:")
    assert made.tracing is not None
    assert len(made.middlewares) == len(made.async_middlewares) == 1

    code = "import sys, penstock; penstock.App('memory:'); print('opentelemetry' in sys.modules)"
    monkeypatch.delenv(SWITCH)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


def test_where_attempts_lead_is_counted_with_the_reason(numbers, app):
    @app.task(queue="mail")
    def later() -> None:
        if current_job().attempt == 1:
            raise RetryLater(after=0)
        raise ValueError("no")

    later.enqueue()
    drain(app)

    settled = {
        (point.attributes["penstock.outcome"], point.attributes["penstock.reason"]): point.value
        for point in numbers()["penstock.attempts.settled"]
    }
    assert settled == {("put_back", "later"): 1, ("failed", "error"): 1}
