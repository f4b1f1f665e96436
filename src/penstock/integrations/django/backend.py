"""Django's own task interface over Penstock: `django.tasks` of Django 6, and `django-tasks` before.

    TASKS = {"default": {"BACKEND": "penstock.integrations.django.backend.PenstockBackend"}}

Every function under Django's `@task` becomes a task of the app, by its module path, when its module
is imported: jobs name tasks, and nothing is imported because a job says so.
"""

# Django brings no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec

from penstock.enqueue.ids import parse_id
from penstock.errors import Refused
from penstock.integrations.django import app
from penstock.job import Job, State
from penstock.run.error_text import class_name, exception_in

_HOME = "django.tasks" if find_spec("django.tasks") else "django_tasks"
_base: Any = import_module(f"{_HOME}.base")
_backends: Any = import_module(f"{_HOME}.backends.base")
_exceptions: Any = import_module(f"{_HOME}.exceptions")
_signals: Any = import_module(f"{_HOME}.signals")

_tasks: dict[str, Any] = {}  # for all threads, each of which has a backend of its own

_STATUS = {
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "SUCCESSFUL",
    State.FAILED: "FAILED",
    State.CANCELLED: "FAILED",
}


class StoredError(_base.TaskError):
    """An error as it is stored: its class is looked up in what is loaded, and never imported."""

    @property
    def exception_class(self) -> type[BaseException]:
        module, _, name = self.exception_class_path.rpartition(".")
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
        raise ValueError(
            f"{self.exception_class_path!r} is no exception of a module that is loaded here: "
            "import its module first"
        )


class PenstockBackend(_backends.BaseTaskBackend):
    """Stores Django's tasks as jobs of `penstock.integrations.django.app`."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Called for every task that is made: from now on workers know it."""
        super().validate_task(task)
        if task.takes_context:
            raise Refused(f"{task.module_path}: use penstock.current_job() instead of a context")
        if task.module_path not in app.tasks:
            app.task(name=task.module_path)(task.func)
        _tasks.setdefault(task.module_path, task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store it; inside of `atomic()` with the block."""
        self.validate_task(task)
        prepared = app.tasks[task.module_path].options(
            queue=task.queue_name, priority=task.priority, at=task.run_after
        )
        handle = prepared.enqueue(*args, **kwargs)
        fields = dict.fromkeys(("started_at", "finished_at", "last_attempted_at"))
        result = _base.TaskResult(
            **fields,
            task=task,
            id=handle.id,
            status=_base.TaskResultStatus.READY,
            enqueued_at=_moment(app.clock.now()),
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """What became of it; arguments are all under their names."""
        job = app.broker.get(parse_id(result_id))
        if job is None or job.task not in _tasks:
            raise _exceptions.TaskResultDoesNotExist(result_id)
        started_at = _moment(job.claimed_at)
        result = _base.TaskResult(
            task=_tasks[job.task],
            id=job.id,
            status=_base.TaskResultStatus[_STATUS.get(job.state, "READY")],
            enqueued_at=_moment(job.enqueued_at),
            started_at=started_at,
            finished_at=_moment(job.ended_at),
            last_attempted_at=started_at,
            args=[],
            kwargs=msgspec.json.decode(job.body)["args"],
            backend=self.alias,
            errors=[_error_of(job)] if job.error else [],
            worker_ids=[job.worker or ""] * job.attempt,
        )
        value = None if job.result is None else msgspec.json.decode(job.result)
        object.__setattr__(result, "_return_value", value)  # as Django does: it is frozen
        return result


def _error_of(job: Job[Any]) -> Any:
    name = exception_in(job.error) or class_name(Refused)
    path = name if "." in name else f"builtins.{name}"
    return StoredError(exception_class_path=path, traceback=job.error)


def _moment(time: float | None) -> datetime | None:
    return None if time is None else datetime.fromtimestamp(time, UTC)
