"""Cancel, retry and delete whatever a filter means: the same for the command line and dashboards.

A filter may mean a million jobs. It is done page by page, each page one transaction of the store:
what is interrupted is done as far as it got, and can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.broker.filter import Filter, parse_filter
from penstock.broker.protocol import Broker
from penstock.broker.values import Action
from penstock.broker.views import Page
from penstock.errors import Refused
from penstock.job import State
from penstock.operate.audit import OPERATION

if TYPE_CHECKING:
    from penstock.operate.actions import Actions

PAGE = 1000


class BulkVerb(NamedTuple):
    """One of the three verbs that take jobs by filter."""

    name: Action
    done: str
    states: tuple[State, ...]  # what a filter means when it names none


CANCEL = BulkVerb("cancel", "cancelled", (State.WAITING, State.READY, State.RUNNING))
RETRY = BulkVerb("retry", "ready again", (State.FAILED, State.CANCELLED))
DELETE = BulkVerb(
    "delete",
    "deleted",
    (State.WAITING, State.READY, State.SUCCEEDED, State.FAILED, State.CANCELLED),
)
ACTS = {act.name: act for act in (CANCEL, RETRY, DELETE)}


class Operation(msgspec.Struct, kw_only=True):
    """How far one is: `state` is running, done, cancelled or failed."""

    id: str
    verb: str
    filter: str
    author: str
    reason: str
    state: str = "running"
    matched: int = 0  # jobs that were found so far
    done: int = 0  # those among them that it applied to
    expected: int | None = None  # how many there were when it was begun; None: any number
    began_at: float = 0.0
    ended_at: float | None = None
    error: str | None = None

    def says(self, state: str) -> dict[str, Any]:
        """What the history keeps of it, once it has ended so."""
        return {"verb": self.verb, "filter": self.filter, "jobs": self.done, "state": state}


def act_named(verb: str) -> BulkVerb:
    """One of the three; refused if it is none."""
    if verb not in ACTS:
        raise Refused(f"{verb[:40]!r} cannot be done by filter: there are {', '.join(ACTS)}")
    return ACTS[verb]


def meant_by(words: Sequence[str], act: BulkVerb, now: float) -> Filter:
    """The filter; where it says nothing of states, those that the verb can apply to."""
    if not words:
        raise Refused(f"{act.name} what? Give a filter such as state:failed task:mail:send")
    wanted = parse_filter(words, now)
    named = wanted.state or wanted.due
    return wanted if named else msgspec.structs.replace(wanted, state=act.states)


def act_on_pages(
    actions: Actions,
    operation: Operation,
    wanted: Filter,
    find: Callable[[Filter, str | None, int], Page],
    size: int = PAGE,
) -> Iterator[bool]:
    """Act a page at a time, downwards; after each page, whether there is more to do."""
    after: str | None = None
    part_of = f"{OPERATION} {operation.id}"
    while True:
        page = find(wanted, after, size)
        # No more than were counted, whatever fits by now: that number was agreed to.
        left = None if operation.expected is None else operation.expected - operation.matched
        ids = [job.id for job in page.jobs[:left]]
        if ids:
            operation.matched += len(ids)
            operation.done += len(
                actions.act(operation.verb, ids, operation.reason, part_of=part_of).done
            )
        after = page.after
        if after is None or operation.matched == operation.expected:
            yield False
            return
        yield True


def pages(broker: Broker, wanted: Filter, size: int = PAGE) -> Iterator[list[str]]:
    """Ids that match, a page at a time, downwards: acting on one page does not move the next."""
    after: str | None = None
    while True:
        page = broker.find(wanted, after, size)
        if page.jobs:
            yield [job.id for job in page.jobs]
        after = page.after
        if after is None:
            return
