"""Cancel, retry and delete whatever a filter means: the same for the command line and dashboards.

A filter may mean a million jobs. It is done page by page, each page one transaction of the store:
what is interrupted is done as far as it got, and can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from penstock.broker.filter import Filter, parse_filter
from penstock.broker.protocol import Broker
from penstock.broker.values import Action
from penstock.job import State

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


def meant_by(words: Sequence[str], act: BulkVerb, now: float) -> Filter:
    """The filter; where it says nothing of states, those that the verb can apply to."""
    wanted = parse_filter(words, now)
    named = wanted.state or wanted.due
    return wanted if named else msgspec.structs.replace(wanted, state=act.states)


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
