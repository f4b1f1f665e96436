"""Flows with a name, as callers see them: a value to enqueue under, and a handle of what is stored.

    access = app.flow("access", find={"user": 62}, state=AccessState)
    handle = access.enqueue(finish.job(rewards.output))     all of it is stored, or nothing
    app.find_flow("access", user=62)                        the newest, from anywhere

What a handle tells is read when it is asked for: two questions may have two answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import msgspec

from penstock.enqueue.handle import Handle
from penstock.enqueue.json_faults import kind_of
from penstock.errors import Refused, ResultGone
from penstock.flows.compose import Group, Jobs
from penstock.flows.flow import FlowRow, NodeRow, OnFailure
from penstock.flows.state import check_carried, plain, text_of
from penstock.flows.state_codec import StateCodec
from penstock.job import Job, State
from penstock.task.option_checks import check_seconds

if TYPE_CHECKING:
    from penstock.app.app import App

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

_PAGE = 50


class NamedFlow(Generic[S]):
    """A name, properties and a state for flows; made by `app.flow(...)`."""

    __slots__ = ("_app", "carried", "find", "name")

    def __init__(
        self,
        app: App,
        name: str,
        find: Mapping[str, Any] | None,
        state: Any,
        state_ttl: float | timedelta | None = None,
    ) -> None:
        if not name:
            raise Refused('app.flow(""): a flow that is to be found has a name')
        self._app = app
        self.name = name
        self.find = plain(find or {})
        codec, value = self._state(app, name, state)
        # What a store keeps of it, as fields of flow.Flow.
        encoded = codec.encode(value)
        check_carried(name, self.find, encoded)
        self.carried: dict[str, Any] = {
            "name": name,
            "find": self.find,
            "state": encoded,
            "state_ttl": check_seconds("state_ttl", state_ttl),
        }

    def __repr__(self) -> str:
        return f"<flow {self.name} {dict(self.find)}>"

    @staticmethod
    def _state(app: App, name: str, state: Any) -> tuple[StateCodec, Any]:
        if state is None:
            return app.state_codecs.get(name) or StateCodec(name), {}
        kind: Any = kind_of(state)
        if kind is dict:
            kind = None
        elif isinstance(state, type):
            kind = cast("Any", state)
            try:
                state = kind()
            except TypeError as error:
                raise Refused(
                    f"app.flow({name!r}, state={kind.__name__}): it cannot be made without values"
                    f" ({error}); give one, as state={kind.__name__}(...)"
                ) from error
        codec = StateCodec(name, kind)
        known = app.state_codecs.setdefault(name, codec)
        if known.kind is not codec.kind and known.kind != codec.kind:
            raise Refused(
                f"flow {name} has a state of the type {known.kind}, and now one of {codec.kind}"
            )
        return known, state

    @overload
    def enqueue(
        self, job: Job[R], /, *, on_failure: OnFailure = "cancel", connection: Any = None
    ) -> FlowHandle[R, S]: ...
    @overload
    def enqueue(
        self,
        *jobs: Job[Any] | Jobs[Any] | Group[Any],
        on_failure: OnFailure = "cancel",
        connection: Any = None,
    ) -> FlowHandle[Any, S]: ...
    def enqueue(
        self,
        *jobs: Job[Any] | Jobs[Any] | Group[Any],
        on_failure: OnFailure = "cancel",
        connection: Any = None,
    ) -> FlowHandle[Any, S]:
        """Store these jobs and all that they need as one flow of this name, or nothing.

        They are joined even if none needs another. The flow's id, and its result, are those of the
        first job that is named here. Sent again, the same jobs are stored once.
        """
        handles = self._app.enqueue(
            _listed(jobs), on_failure=on_failure, connection=connection, flow=self
        )
        return FlowHandle(self._app, handles[0].id)

    async def enqueue_async(
        self,
        *jobs: Job[Any] | Jobs[Any] | Group[Any],
        on_failure: OnFailure = "cancel",
        connection: Any = None,
    ) -> FlowHandle[Any, S]:
        """As `enqueue`, without holding up the event loop; a connection must be asynchronous."""
        handles = await self._app.enqueue_async(
            _listed(jobs), on_failure=on_failure, connection=connection, flow=self
        )
        return FlowHandle(self._app, handles[0].id)


def _listed(jobs: tuple[Job[Any] | Jobs[Any] | Group[Any], ...]) -> list[Job[Any] | Jobs[Any]]:
    listed: list[Job[Any] | Jobs[Any]] = []
    for job in jobs:
        if isinstance(job, Group):
            listed += job.jobs
        else:
            listed.append(job)
    return listed


class FlowJob(msgspec.Struct, frozen=True):
    """One job of a flow, and what it returned."""

    id: str
    task: str
    node: str
    state: State | None  # None: the store does not know it any more
    output: Any = None  # None without success, or for a task that returns nothing


class FlowHandle(Generic[R, S]):
    """One stored flow. Whatever it tells is read at that moment."""

    __slots__ = ("_app", "id")

    def __init__(self, app: App, id: str) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"<handle of flow {self.id}>"

    def row(self) -> FlowRow:
        """All that the store has of it; ResultGone if it was deleted, or pruned after it ended."""
        row = self._app.broker.flow(self.id)
        if row is None:
            raise ResultGone(
                f"flow {self.id} is not in the store: it was deleted or pruned after it ended, or"
                " it was never stored"
            )
        return row

    @property
    def name(self) -> str:
        return self.row().name

    @property
    def find(self) -> Mapping[str, Any]:
        """The properties that it is found by."""
        return self.row().find

    @property
    def state(self) -> S:
        """What its members merged so far, of the type that `app.flow` was told, or a dict."""
        row = self.row()
        codec = self._app.state_codecs.get(row.name) or StateCodec(row.name)
        return codec.decode(row.state)

    def state_as(self, type: type[T]) -> T:  # noqa: A002  the word that a caller expects
        """The state as a value of this type."""
        row = self.row()
        return StateCodec(row.name, type).decode(row.state)

    @property
    def nodes(self) -> tuple[NodeRow, ...]:
        """Its parts with their counts, needs before those who need them."""
        return self.row().nodes

    @property
    def jobs(self) -> list[FlowJob]:
        """Every job of it, in the order of its parts, with what those returned that succeeded."""
        flow_jobs: list[FlowJob] = []
        for node in self.row().nodes:
            task = self._app.task_named(node.task)
            for output in self._app.broker.outputs(node.id):
                result: Any = output.result
                if result is not None:
                    result = (task.results.decode if task else msgspec.json.decode)(result)
                flow_jobs.append(FlowJob(output.job, node.task, node.id, output.state, result))
        return flow_jobs

    @property
    def ended(self) -> bool:
        """Whether all of its jobs have ended, however they did."""
        return self.row().ended_at is not None

    @property
    def bad(self) -> int:
        """How many of its jobs ended without success."""
        return sum(node.bad for node in self.row().nodes)

    def result(self, timeout: float | None = None) -> R:
        """What the job returned that was named first at `enqueue`; see Handle.result."""
        return Handle[R](self._app, self.id).result(timeout)

    async def result_async(self, timeout: float | None = None) -> R:  # noqa: ASYNC109  as `result`
        """As `result`, without holding up the event loop."""
        return await Handle[R](self._app, self.id).result_async(timeout)

    def cancel(self, reason: str = "") -> int:
        """End all of its jobs that have not ended, in one step; those that run are told to.

        Returns how many that were.
        """
        return len(self._app.broker.act("cancel", (), reason=reason, flow=self.id))

    def retry(self, reason: str = "") -> int:
        """Run all of its jobs again that ended without success, in one step; how many that are.

        Those that were cancelled because of others wait for these again.
        """
        return len(self._app.broker.act("retry", (), reason=reason, flow=self.id))

    def delete(self, reason: str = "") -> int:
        """Forget it: jobs, state, and what it is found by; how many jobs that were.

        What runs is not interrupted, but nothing of it is written any more.
        """
        return len(self._app.broker.act("delete", (), reason=reason, flow=self.id))


def find_flows(app: App, name: str, find: Mapping[str, Any]) -> Iterator[FlowHandle[Any, Any]]:
    """Flows of this name with these properties, newest first, as far as somebody asks."""
    properties = {field: text_of(field, value) for field, value in plain(find).items()}
    after: str | None = None
    limit = 1  # most look for the newest alone
    while True:
        page = app.broker.flows(name, properties, after, limit)
        for row in page.flows:
            yield FlowHandle(app, row.id)
        after, limit = page.after, _PAGE
        if after is None:
            return
