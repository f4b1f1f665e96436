"""The flow of the job that is running, as its task sees it.

A merge is written at once, and fenced like every write of a job. What a killed attempt merged
stays: the next one must be able to merge it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.enqueue.codec import encode_value
from penstock.errors import StaleLease
from penstock.flows.flow import FlowRow
from penstock.flows.state import merged
from penstock.flows.state_codec import StateCodec

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.run.job_notes import Ask, Notebook

T = TypeVar("T")


class CurrentFlow:
    """The flow that the running job is in."""

    __slots__ = ("_app", "_ask", "_found", "_notebook", "id")

    def __init__(self, app: App, id: str, notebook: Notebook, ask: Ask) -> None:
        self._app = app
        self._ask = ask
        self._notebook = notebook
        self._found: FlowRow | None = None
        self.id = id

    @property
    def name(self) -> str:
        return self._carried().name

    @property
    def find(self) -> Mapping[str, Any]:
        """The properties that it is found by."""
        return self._carried().find

    @property
    def state(self) -> FlowState:
        """What its members share."""
        return FlowState(self)

    def row(self) -> FlowRow:
        """The flow as it stands now."""
        row = self._ask(lambda: self._app.broker.flow(self.id))
        if row is None:
            raise StaleLease(f"flow {self.id} was deleted, and with it the job that runs here")
        self._found = row
        return row

    def codec(self) -> StateCodec:
        """Of the type that `app.flow` was told in this process, if it was told one."""
        name = self._carried().name
        return self._app.state_codecs.get(name) or StateCodec(name)

    def merge(self, patch: bytes) -> None:
        self._notebook.write("state", "", patch)

    def _carried(self) -> FlowRow:
        # Name and properties never change; everything else is read anew.
        return self._found or self.row()


class FlowState:
    """The state of a flow: read as a whole, changed by merging."""

    __slots__ = ("_flow",)

    def __init__(self, flow: CurrentFlow) -> None:
        self._flow = flow

    @overload
    def read(self) -> Any: ...
    @overload
    def read(self, type: type[T]) -> T: ...
    def read(self, type: Any = None) -> Any:  # noqa: A002  the word that a caller expects
        """The state as it stands now: of this type, else as `app.flow` was told, else a dict."""
        row = self._flow.row()
        codec = self._flow.codec() if type is None else StateCodec(row.name, type)
        return codec.decode(row.state)

    def merge(self, **changes: object) -> None:
        """Put these into the state, at once: dicts key by key, however deep, the rest as it is.

        What members merge at the same moment is lost only where they name the same key; then the
        last one stands. If the type of the state is known here, changes must fit it.
        """
        patch = encode_value(changes, "state")
        codec = self._flow.codec()
        codec.check(changes, merged(self._flow.row().state, patch))
        self._flow.merge(patch)
