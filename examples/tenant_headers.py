"""Headers: tenant and trace ids that go from a request to its job, and to the jobs of that job.

    python examples/tenant_headers.py

A hook writes headers into every job that is made; a middleware reads them where the job runs. No
task, and no caller, has to know about either.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from penstock import App, Job, Task, current_job

app = App("memory:")
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
trace: ContextVar[str] = ContextVar("trace", default="")
book: list[tuple[str, str, str]] = []


@app.on_enqueue
def sign(headers: dict[str, str], _: Task[..., Any]) -> None:
    """Give each job the tenant and the trace id of the current request."""
    headers.setdefault("tenant", tenant.get())
    headers.setdefault("trace", trace.get())


@app.middleware
def as_the_tenant(call_next: Callable[[], Any], _: Job[Any]) -> Any:
    """Run the job under its tenant and trace id."""
    headers = current_job().headers
    tokens = tenant.set(headers["tenant"]), trace.set(headers["trace"])
    try:
        return call_next()
    finally:
        tenant.reset(tokens[0])
        trace.reset(tokens[1])


@app.task
def resize(image: str) -> None:
    """A task that knows nothing of headers, and enqueues another one."""
    book.append((tenant.get(), trace.get(), f"resize {image}"))
    publish.enqueue(image)


@app.task
def publish(image: str) -> None:
    """Two jobs away from the request, and still the same tenant."""
    book.append((tenant.get(), trace.get(), f"publish {image}"))


def request(who: str, number: str, image: str) -> None:
    """A request, as a web framework serves it."""
    tokens = tenant.set(who), trace.set(number)
    resize.enqueue(image)
    tenant.reset(tokens[0])
    trace.reset(tokens[1])


if __name__ == "__main__":
    with app.testing() as t:
        request("acme", "trace-1", "cat.png")
        request("globex", "trace-2", "dog.png")
        resize.options(headers={"tenant": "initech"}).enqueue("cow.png")  # explicit headers win
        t.drain()

    for line in book:
        print(*line)
    assert ("acme", "trace-1", "publish cat.png") in book
    assert ("globex", "trace-2", "publish dog.png") in book
    assert ("initech", "", "publish cow.png") in book
    assert tenant.get() == "nobody"
