"""A job for a run of another orchestrator: named after that run, so that asking twice is one job.

    run = ExternalRun(App(url), "airflow", dag_id, task_id, run_id)
    run.begin("trips:conflate", {"day": "2026-01-31"})
    ended = run.ended()         # None: it waits or runs
    run.cancel("stopped there")

Whoever begins it may be killed and begin it again, days later, on another machine: the id says
which job it is. One that failed is retried then; one that succeeded is not run a second time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.app.app import App
from penstock.enqueue.ids import lasting_id
from penstock.errors import Refused
from penstock.job import ENDED, State


class ExternalEnd(NamedTuple):
    """How a job ended; `says` is a sentence for the other side's log."""

    state: State
    says: str
    result: Any = None


class ExternalRun:
    """The job of one run elsewhere; `names` are those of the run, the system's first."""

    def __init__(self, app: App, *names: str) -> None:
        if not names or not all(names):
            raise Refused("an external run needs names: of its system, its task and its run")
        self.app = app
        self.author = names[0]
        self.id = lasting_id("external", *names)

    def begin(
        self, task: str, arguments: Mapping[str, Any], *, queue: str | None = None, **options: Any
    ) -> None:
        """Store the job, unless it is there; retry it if it failed or was cancelled.

        The task's code may live elsewhere: then its arguments are checked where it runs.
        """
        found = self.app.task_named(task)
        if found is None:
            given: dict[str, Any] = {} if queue is None else {"queue": queue}
            found = self.app.declare(task, **given)(_taking(arguments))
        elif queue is not None:
            options["queue"] = queue
        job = found.options(**options).job(**arguments)
        known = self.app.store([msgspec.structs.replace(job, id=self.id)]).known
        if not known:
            return
        stored = self.app.broker.get(self.id)
        if stored is not None and stored.state in {State.FAILED, State.CANCELLED}:
            self.app.broker.act("retry", [self.id], self.author, "begun again")

    def ended(self) -> ExternalEnd | None:
        """How it ended; None while it waits or runs."""
        job = self.app.broker.get(self.id)
        if job is None:
            return ExternalEnd(State.CANCELLED, f"job {self.id} was deleted")
        if job.state not in ENDED:
            return None
        if job.state is State.SUCCEEDED:
            result = None if job.result is None else msgspec.json.decode(job.result)
            return ExternalEnd(job.state, f"job {self.id} succeeded", result)
        because = (job.error or job.reason or "").partition("\n")[0]
        return ExternalEnd(job.state, f"job {self.id} {job.state}: {because or 'nobody said why'}")

    def cancel(self, reason: str) -> bool:
        """Cancel it, also while it runs; False if it has ended."""
        return bool(self.app.broker.act("cancel", [self.id], self.author, reason))


def _taking(names: Iterable[str]) -> Callable[..., Any]:
    """A function with these parameters; what they take is known where the task's code is."""

    def elsewhere() -> Any: ...

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, keyword, annotation=Any) for name in names]
    elsewhere.__signature__ = inspect.Signature(parameters)  # inspect reads it
    elsewhere.__annotations__ = dict.fromkeys(names, Any)
    return elsewhere
