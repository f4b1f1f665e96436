"""OpenTelemetry: a span for every call that enqueues, one for every run, and a link between them.

Off unless PENSTOCK_TRACING is set or `trace(app)` is called; needs the extra `metrics`. The link
rides in the job's headers (`traceparent`): a run may come days later, in another process, and so
has a trace of its own. Spans say which queue, task, job and attempt; never what a job carries, nor
what an error says, for that may hold a secret.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.current import CURRENT
from penstock.errors import JobInterrupted, Refused, RetryLater

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

    from penstock.app import App
    from penstock.job import Job

R = TypeVar("R")

SWITCH = "PENSTOCK_TRACING"
_NAME = "penstock"


def switched_on() -> bool:
    return os.environ.get(SWITCH, "") not in {"", "0"}


def trace(app: App) -> None:
    """Have this app's enqueues and runs traced; a second time changes nothing."""
    if app.tracing is None:
        app.tracing = Tracing()
        app.on_enqueue(app.tracing.add_link)
        app.middleware(app.tracing.around)
        app.middleware(app.tracing.around_async)


class Tracing:
    """Makes spans. The tracer is asked for at once, and goes to whoever provides one later."""

    def __init__(self) -> None:
        if find_spec("opentelemetry") is None:
            raise Refused(
                f"{SWITCH} is set, and tracing needs OpenTelemetry: pip install 'penstock[metrics]'"
            )
        from opentelemetry import trace as api
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = api.get_tracer(_NAME)
        self._carrier = TraceContextTextMapPropagator()

    def begin(self, queue: str, task: str) -> Sending:
        """A span for a call that enqueues, current until its `end`."""
        return Sending(self._tracer, queue, task)

    def add_link(self, headers: dict[str, str], task: object) -> None:
        """Serves on_enqueue: where the job comes from, unless the caller said so."""
        del task
        if "traceparent" not in headers:
            self._carrier.inject(headers)

    def around(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        """Serves as middleware."""
        with self._run(job) as span:
            try:
                return call_next()
            except BaseException as error:
                _tell(span, error)
                raise

    async def around_async(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        """Serves as middleware of `async def` tasks."""
        with self._run(job) as span:
            try:
                return await call_next()
            except BaseException as error:
                _tell(span, error)
                raise

    def _run(self, job: Job[Any]) -> Any:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        return self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=self._links(),
            attributes={
                **_attributes("process", job.queue, job.task),
                "messaging.message.id": job.id,
                "penstock.attempt": job.attempt,
            },
            record_exception=False,
            set_status_on_exception=False,
        )

    def _links(self) -> list[Link]:
        from opentelemetry.trace import Link, get_current_span

        current = CURRENT.get(None)
        headers = dict(current.headers) if current is not None else {}
        if "traceparent" not in headers:
            return []
        origin = get_current_span(self._carrier.extract(headers)).get_span_context()
        return [Link(origin)] if origin.is_valid else []


class Sending:
    """The span of one call that enqueues."""

    def __init__(self, tracer: Any, queue: str, task: str) -> None:
        from opentelemetry import context
        from opentelemetry.trace import SpanKind, set_span_in_context

        self._before = sys.exception()
        self._span: Span = tracer.start_span(
            f"send {queue}", kind=SpanKind.PRODUCER, attributes=_attributes("send", queue, task)
        )
        self._token = context.attach(set_span_in_context(self._span))

    def sent(self, id: str) -> None:
        """The one job that was stored."""
        self._span.set_attribute("messaging.message.id", id)

    def count(self, jobs: int) -> None:
        """How many were, by a call that stores many."""
        self._span.set_attribute("messaging.batch.message_count", jobs)

    def end(self) -> None:
        """The call is over; by an error, if one has come up since."""
        from opentelemetry import context

        error = sys.exception()
        if error is not None and error is not self._before:
            _tell(self._span, error)
        context.detach(self._token)
        self._span.end()


def _attributes(operation: str, queue: str, task: str) -> dict[str, str]:
    return {
        "messaging.system": "penstock",
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "penstock.task": task,
    }


def _tell(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import StatusCode

    if isinstance(error, (RetryLater, JobInterrupted)):
        span.set_attribute("penstock.put_back", True)
        return
    kind = type(error).__qualname__
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, kind)
