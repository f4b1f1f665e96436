"""OpenTelemetry: a span for every call that enqueues, one for every run, and a link between them.

Off unless PENSTOCK_TRACING is set or `trace(app)` is called; needs the extra `metrics`. The link
rides in the job's headers (`traceparent`): a run may come days later, in another process, and so
has a trace of its own. Spans say which queue, task, job and attempt; never what a job carries, nor
what an error says, for that may hold a secret. Whoever provides a meter gets four numbers as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from penstock.enqueue.codec import add_options, read_body
from penstock.errors import JobInterrupted, Refused, RetryLater
from penstock.flows.flow import WAIT_TASK
from penstock.job import Job, Lane, Outcome, Parcel, count_jobs, outcome_word
from penstock.run.current import CURRENT, CurrentJob

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

    from penstock.app.app import App

R = TypeVar("R")
ToSend = TypeVar("ToSend", bound=Job[Any] | Parcel)

SWITCH = "PENSTOCK_TRACING"
_NAME = "penstock"
HEADER = "traceparent"
_QUEUE = "messaging.destination.name"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)


class NotSent(Exception):
    """Raised inside of `sending`: nothing was stored, and there is nothing to tell."""


def switched_on() -> bool:
    return os.environ.get(SWITCH, "") not in {"", "0"}


def trace(app: App) -> None:
    """Have this app's enqueues and runs traced; a second time changes nothing."""
    if app.tracing is None:
        app.tracing = Tracing()
        app.middleware(app.tracing.around)
        app.middleware(app.tracing.around_async)


def told_settled(app: App) -> Callable[[Sequence[tuple[Job[Any], Outcome]]], None]:
    """Counts outcomes that the store accepted, while this app is traced."""

    def tell(settled: Sequence[tuple[Job[Any], Outcome]]) -> None:
        if app.tracing is not None:
            app.tracing.settled(settled)

    return tell


class Tracing:
    """Makes spans. The tracer is asked for at once, and goes to whoever provides one later."""

    def __init__(self) -> None:
        if find_spec("opentelemetry") is None:
            raise Refused(
                f"{SWITCH} is set, and tracing needs OpenTelemetry:"
                " pip install 'penstock-queue[metrics]'"
            )
        from opentelemetry import metrics
        from opentelemetry import trace as api
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = api.get_tracer(_NAME)
        self._carrier = TraceContextTextMapPropagator()
        meter = metrics.get_meter(_NAME)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._outcomes = meter.create_counter("penstock.attempts.settled", "{attempt}")
        self._sending = meter.create_histogram(
            "messaging.client.operation.duration", "s", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._running = meter.create_histogram(
            "messaging.process.duration", "s", explicit_bucket_boundaries_advisory=_SECONDS
        )

    # Send

    @contextmanager
    def sending(self, jobs: Sequence[ToSend], within: Any = None) -> Generator[list[ToSend]]:
        """A span around what stores these jobs, and the jobs with a header that leads to it.

        `within` is the context that the span is a part of; None is the caller's own.
        """
        lanes = {job.lane for job in jobs}
        with self._send(
            {lane.queue for lane in lanes}, {lane.task for lane in lanes}, within
        ) as call:
            call.jobs = count_jobs(jobs)
            if call.jobs == 1:
                call.span.set_attribute("messaging.message.id", jobs[0].id)
            yield [call.with_header(job) for job in jobs]

    def sending_many(self, lane: Lane) -> AbstractContextManager[SendingSpan]:
        """As `sending`, of a call that stores its jobs piece by piece, and counts them itself."""
        return self._send({lane.queue}, {lane.task})

    def spawned(self, current: CurrentJob, jobs: Sequence[ToSend]) -> list[ToSend]:
        """As `sending`, of what is stored with the end of this job: by whoever settles it."""
        with self.sending(jobs, current.span) as traced:
            return traced

    @contextmanager
    def _send(
        self, queues: set[str], tasks: set[str], within: Any = None
    ) -> Generator[SendingSpan]:
        from opentelemetry.trace import SpanKind, set_span_in_context

        attributes = _span_attributes("send", queues, tasks)
        name = f"send {attributes.get(_QUEUE, '')}".rstrip()
        span = self._tracer.start_span(
            name, context=within, kind=SpanKind.PRODUCER, attributes=attributes
        )
        headers: dict[str, str] = {}
        self._carrier.inject(headers, set_span_in_context(span))
        call, labels, began = (
            SendingSpan(span, headers.get(HEADER, "")),
            _metric_attributes(attributes),
            monotonic(),
        )
        try:
            yield call
            self._sent.add(call.jobs, labels)
        except NotSent:
            raise  # and the span is never heard of
        except BaseException as error:
            _record_error(span, error)
            labels = {**labels, "error.type": type(error).__qualname__}
            self._end(call, began, labels)
            raise
        self._end(call, began, labels)

    def _end(self, call: SendingSpan, began: float, labels: dict[str, str]) -> None:
        if call.jobs != 1:
            call.span.set_attribute("messaging.batch.message_count", call.jobs)
        call.span.end()
        self._sending.record(monotonic() - began, labels)

    # Run

    def around(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        """Serves as middleware."""
        with self._run(job):
            return call_next()

    async def around_async(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        """Serves as middleware of `async def` tasks."""
        with self._run(job):
            return await call_next()

    @contextmanager
    def _run(self, job: Job[Any]) -> Generator[None]:
        from opentelemetry.context import Context, attach, detach
        from opentelemetry.trace import SpanKind, set_span_in_context

        current = CURRENT.get(None)
        attributes = _span_attributes("process", {job.queue}, {job.task})
        span = self._tracer.start_span(
            f"process {job.queue}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=self._links(dict(current.headers) if current is not None else {}),
            attributes={
                **attributes,
                "messaging.message.id": job.id,
                "penstock.attempt": job.attempt,
            },
        )
        within = set_span_in_context(span)
        if current is not None:
            current.span = within
        labels, token, began = _metric_attributes(attributes), attach(within), monotonic()
        self._consumed.add(1, labels)
        try:
            yield
        except BaseException as error:
            _record_error(span, error)
            labels = {**labels, "error.type": type(error).__qualname__}
            raise
        finally:
            detach(token)
            span.end()
            self._running.record(monotonic() - began, labels)

    def settled(self, settled: Sequence[tuple[Job[Any], Outcome]]) -> None:
        """Count where these attempts led, and why."""
        for job, outcome in settled:
            attributes = _metric_attributes(_span_attributes("settle", {job.queue}, {job.task}))
            word = outcome_word(outcome)
            labels = {"penstock.outcome": word, "penstock.reason": outcome.reason or "completed"}
            self._outcomes.add(1, {**attributes, **labels})

    def _links(self, headers: dict[str, str]) -> list[Link]:
        from opentelemetry.trace import Link, get_current_span

        if HEADER not in headers:
            return []
        origin = get_current_span(self._carrier.extract(headers)).get_span_context()
        return [Link(origin)] if origin.is_valid else []


class SendingSpan:
    """One call that enqueues: its span, and how many jobs it stores."""

    def __init__(self, span: Span, header: str) -> None:
        self.span = span
        self.jobs = 0
        self._header = header  # empty: nobody provides a tracer

    def with_header(self, job: ToSend) -> ToSend:
        """The job, with a header that leads to the span; one that it has already stays."""
        if not self._header or job.lane.task == WAIT_TASK:  # whom nobody runs
            return job
        if isinstance(job, Parcel):
            bodies = [self.body_with_header(body) for body in job.bodies]
            return cast("ToSend", Parcel(job.id, job.lane, bodies))
        return cast("ToSend", msgspec.structs.replace(job, body=self.body_with_header(job.body)))

    def body_with_header(self, body: bytes) -> bytes:
        """As `with_header`, of the body alone."""
        if not self._header:
            return body
        if b'"headers"' not in body:
            return add_options(body, msgspec.json.encode({"headers": {HEADER: self._header}}))
        read = read_body(body)
        if HEADER in read.headers:
            return body
        headers = {**read.headers, HEADER: self._header}
        return msgspec.json.encode(msgspec.structs.replace(read, headers=headers))


def _span_attributes(operation: str, queues: set[str], tasks: set[str]) -> dict[str, str]:
    """What a span says of itself; of several queues, or tasks, none."""
    attributes = {
        "messaging.system": "penstock",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if len(queues) == 1:
        attributes[_QUEUE] = next(iter(queues))
    if len(tasks) == 1:
        attributes["penstock.task"] = next(iter(tasks))
    return attributes


def _metric_attributes(attributes: dict[str, str]) -> dict[str, str]:
    """What a number is told by: no id, so that there are only so many."""
    return {name: value for name, value in attributes.items() if name != "messaging.operation.type"}


def _record_error(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    if isinstance(error, (RetryLater, JobInterrupted)):
        span.set_attribute("penstock.put_back", True)
        return
    kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, kind)
