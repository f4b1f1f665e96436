"""Look: what people see, beside `get`, `count`, `history` and `why` of Core. Nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from penstock.broker.filter import Filter
from penstock.broker.records import Record
from penstock.broker.views import Note, Page, WorkerRow
from penstock.flows.flow import FlowPage, FlowRow, JobOutput

R = TypeVar("R", bound=Record)


class Look(Protocol):
    """What people see, beside `get`, `count`, `history` and `why` of Core."""

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        """The notes of a job, of one kind or all, oldest first."""
        ...

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        """Jobs that match, newest first, ended ones included while they are kept.

        `after` is the `after` of the page before. At most 1,000 jobs a page.
        """
        ...

    def flow(self, flow_id: str) -> FlowRow | None:
        """A flow and its nodes, each behind the nodes that it needs; None if it is not known."""
        ...

    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """Flows of this name that have all of these properties, newest id first.

        A property that is a list is found by any of its elements. With a name and properties it
        costs the same among a million flows.
        """
        ...

    def outputs(self, node: str) -> list[JobOutput]:
        """The outputs of a node's jobs, in their order."""
        ...

    def records(self, kind: type[R]) -> list[R]:
        """Every record of this kind: rules in force, marks by lake, the others by name."""
        ...

    def workers(self) -> list[WorkerRow]:
        """Every worker row; those that lapsed are included until they are recovered."""
        ...
