"""Named flows of an App: made, found, and held by a handle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from penstock.enqueue.ids import parse_id
from penstock.flows.named import FlowHandle, NamedFlow, find_flows
from penstock.task.option_checks import check_identifier

if TYPE_CHECKING:
    from penstock.app.app import App

S = TypeVar("S")


class AppFlows:
    """What an App does with named flows."""

    @overload
    def flow(
        self,
        name: str,
        *,
        find: Mapping[str, Any] | None = None,
        state: type[S],
        state_ttl: float | timedelta | None = None,
    ) -> NamedFlow[S]: ...
    @overload
    def flow(
        self,
        name: str,
        *,
        find: Mapping[str, Any] | None = None,
        state: S,
        state_ttl: float | timedelta | None = None,
    ) -> NamedFlow[S]: ...
    @overload
    def flow(
        self, name: str, *, find: Mapping[str, Any] | None = None
    ) -> NamedFlow[dict[str, Any]]: ...
    def flow(
        self,
        name: str,
        *,
        find: Mapping[str, Any] | None = None,
        state: Any = None,
        state_ttl: float | timedelta | None = None,
    ) -> NamedFlow[Any]:
        """A name to enqueue jobs under: `app.flow("access", find={"user": 62}).enqueue(job)`.

        It is found by its properties (`app.find_flow`). `state` is what its jobs share: a type that
        is made with its defaults, or a value; a dataclass, a Struct, a pydantic model or a dict.
        `state_ttl`: so many seconds after it was stored or last changed, the state is empty again.
        """
        return NamedFlow(cast("App", self), check_identifier("flow", name), find, state, state_ttl)

    def find_flow(self, name: str, /, **find: Any) -> FlowHandle[Any, Any] | None:
        """The newest flow of this name that has all of these properties; None if there is none.

        One whose property is a list has each of its elements.
        """
        return next(self.find_flows(name, **find), None)

    def find_flows(self, name: str, /, **find: Any) -> Iterator[FlowHandle[Any, Any]]:
        """As `find_flow`, all of them, newest first, read as far as you go."""
        return find_flows(cast("App", self), name, find)

    def flow_handle(self, id: str) -> FlowHandle[Any, Any]:
        """The handle of a flow that was stored before, named or not, by its id."""
        return FlowHandle(cast("App", self), parse_id(id))
