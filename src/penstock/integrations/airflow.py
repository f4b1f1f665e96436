"""Airflow: an operator that runs a Penstock job, and waits for it without holding a worker slot.

    PenstockOperator(task_id="conflate", task="trips:conflate", arguments={"day": "{{ ds }}"})

The job is named after dag, task, run and map index: whatever is killed or tried again there finds
the same job. Needs Airflow 3; imported only by who uses it. Where the store is, `profile` says, or
PENSTOCK_URL, for Airflow's workers and its triggerer alike: no password goes to Airflow's database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from typing import Any

from penstock.app.app import App
from penstock.app.settings import mask, resolve_url
from penstock.errors import Refused
from penstock.integrations.external_run import ExternalEnd, ExternalRun
from penstock.job import State

_sdk: Any = import_module("airflow.sdk")
_exceptions: Any = import_module("airflow.sdk.exceptions")
_triggers: Any = import_module("airflow.triggers.base")

_SYSTEM = "airflow"
_POLL_SECONDS = 5.0


def _run(names: Mapping[str, Any]) -> ExternalRun:
    """The job of a run of a task, and the store that has it; to be closed by whoever asks."""
    url = names.get("url") or resolve_url(None, profile=names.get("profile")).url
    parts = (names["dag_id"], names["task_id"], names["run_id"], str(names["map_index"]))
    return ExternalRun(App(url, name=names.get("app") or None), _SYSTEM, *parts)


class PenstockJobLink(_sdk.BaseOperatorLink):
    """Leads from a task in Airflow to its job on Penstock's dashboard."""

    name = "Penstock job"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The address of the job; nothing where the operator has no `dashboard`."""
        if not operator.dashboard:
            return ""
        index = getattr(ti_key, "map_index", -1)
        run = ExternalRun(
            App("memory:"), _SYSTEM, ti_key.dag_id, ti_key.task_id, ti_key.run_id, str(index)
        )
        return f"{operator.dashboard.rstrip('/')}/jobs/{run.id}"


class PenstockOperator(_sdk.BaseOperator):
    """Enqueue a job, and be done when it is; deferred meanwhile unless `deferrable=False`.

    `arguments` are those of the task, by name, and templates. `app` is the name of the program,
    where it has one (`App(name=...)`). A result is what the job returned.
    """

    template_fields = ("task", "arguments", "queue_name", "profile")
    operator_extra_links = (PenstockJobLink(),)

    def __init__(
        self,
        *,
        task: str,
        arguments: Mapping[str, Any] | None = None,
        queue_name: str | None = None,
        app: str | None = None,
        profile: str | None = None,
        url: str | None = None,
        dashboard: str = "",
        deferrable: bool = True,
        poll_seconds: float = _POLL_SECONDS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)  # pyright: ignore[reportUnknownMemberType]  Airflow's, and Any here
        if url is not None and mask(url) != url:
            raise Refused(
                f"{mask(url)}: Airflow would store its password: name a profile of penstock.toml,"
                " or set PENSTOCK_URL for workers and triggerer"
            )
        self.task = task
        self.arguments = dict(arguments or {})
        self.queue_name = queue_name
        self.app = app
        self.profile = profile
        self.url = url
        self.dashboard = dashboard
        self.deferrable = deferrable
        self.poll_seconds = poll_seconds
        self._names: dict[str, Any] | None = None

    def execute(self, context: Any) -> Any:
        """Store the job, or find it, and wait."""
        instance = context["ti"]
        self._names = {
            "dag_id": instance.dag_id,
            "task_id": instance.task_id,
            "run_id": instance.run_id,
            "map_index": getattr(instance, "map_index", -1),
            "app": self.app,
            "profile": self.profile,
            "url": self.url,
        }
        run = _run(self._names)
        try:
            run.begin(self.task, self.arguments, queue=self.queue_name)
            self.log.info("job %s: penstock why %s", run.id, run.id)
            ended = run.ended()
            if ended is not None:
                return _answer(ended)
        finally:
            run.app.close()
        trigger = PenstockTrigger(names=self._names, poll_seconds=self.poll_seconds)
        if self.deferrable:
            self.defer(
                trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout
            )
        return _answer(asyncio.run(trigger.wait()))

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> Any:  # noqa: ARG002  Airflow gives it
        """The job has ended: its result, or the failure of this task."""
        return _answer(ExternalEnd(State(event["state"]), event["says"], event["result"]))

    def on_kill(self) -> None:
        """Cancel the job: somebody stopped the task while it waited here."""
        if self._names is not None:
            _cancel(self._names)


class PenstockTrigger(_triggers.BaseTrigger):
    """Waits for the end of a job."""

    def __init__(self, names: Mapping[str, Any], poll_seconds: float = _POLL_SECONDS) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  as above
        self.names = dict(names)
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How a triggerer makes it again."""
        return (
            f"{__name__}.{type(self).__name__}",
            {"names": self.names, "poll_seconds": self.poll_seconds},
        )

    async def run(self) -> AsyncIterator[Any]:
        """One event: how the job ended."""
        ended = await self.wait()
        yield _triggers.TriggerEvent(
            {"state": str(ended.state), "says": ended.says, "result": ended.result}
        )

    async def wait(self) -> ExternalEnd:
        """Look until it has ended; a store that is away is asked again."""
        run = _run(self.names)
        try:
            while True:
                ended = await asyncio.to_thread(_look, run, self.log)
                if ended is not None:
                    return ended
                await asyncio.sleep(self.poll_seconds)
        finally:
            await asyncio.to_thread(run.app.close)

    async def on_kill(self) -> None:
        """Cancel the job: somebody stopped the task while it was deferred."""
        await asyncio.to_thread(_cancel, self.names)


def _look(run: ExternalRun, log: Any) -> ExternalEnd | None:
    try:
        return run.ended()
    except Exception as error:
        log.warning("job %s cannot be looked at, and is asked for again: %s", run.id, error)
        return None


def _cancel(names: Mapping[str, Any]) -> None:
    run = _run(names)
    try:
        run.cancel("stopped in Airflow")
    finally:
        run.app.close()


def _answer(ended: ExternalEnd) -> Any:
    if ended.state is State.SUCCEEDED:
        return ended.result
    if ended.state is State.CANCELLED:
        raise _exceptions.AirflowFailException(ended.says)  # trying it again would undo that
    raise _exceptions.AirflowException(ended.says)
