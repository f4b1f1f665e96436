"""Cancel, retry and delete all jobs that match a filter; for the command line and the dashboard.

A filter may match a million jobs. They are changed page by page, each page in one transaction: an
interrupted operation has done a part, and can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.broker.filter import Filter, parse_filter
from penstock.broker.values import Action
from penstock.errors import Refused
from penstock.job import ENDED, Job, State
from penstock.operate.audit import OPERATION
from penstock.operate.find_pages import Find, find_pages

if TYPE_CHECKING:
    from penstock.operate.actions import Actions


class BulkVerb(NamedTuple):
    """A verb that can act on all jobs that match a filter."""

    name: Action
    done: str  # what is said of a job afterwards
    states: tuple[State, ...]  # that it applies to


CANCEL = BulkVerb("cancel", "cancelled", (State.WAITING, State.READY, State.RUNNING))
RETRY = BulkVerb("retry", "ready again", (State.FAILED, State.CANCELLED))
DELETE = BulkVerb(
    "delete",
    "deleted",
    (State.WAITING, State.READY, State.SUCCEEDED, State.FAILED, State.CANCELLED),
)
BULK_VERBS = {verb.name: verb for verb in (CANCEL, RETRY, DELETE)}


class Operation(msgspec.Struct, kw_only=True):
    """The progress of a bulk operation; `state` is running, done, cancelled or failed."""

    id: str
    verb: str
    filter: str
    author: str
    reason: str
    state: str = "running"
    matched: int = 0  # jobs found so far
    done: int = 0  # of these, those that were changed
    secrets_gone: int = 0  # left by a retry, because their secret arguments are not stored any more
    expected: int | None = None  # matching jobs when it began; None: not bounded
    began_at: float = 0.0
    ended_at: float | None = None
    error: str | None = None

    def audit_data(self, state: str) -> dict[str, Any]:
        """What the history keeps of an operation that ended in this state."""
        data = {"verb": self.verb, "filter": self.filter, "jobs": self.done, "state": state}
        return data | ({"secrets_gone": self.secrets_gone} if self.secrets_gone else {})


def bulk_verb_named(verb: str) -> BulkVerb:
    """The verb of this name; refused if there is none."""
    if verb not in BULK_VERBS:
        raise Refused(f"{verb[:40]!r} cannot be done by filter; {', '.join(BULK_VERBS)} can")
    return BULK_VERBS[verb]


def parse_bulk_filter(words: Sequence[str], verb: BulkVerb, now: float) -> Filter:
    """The filter; if it names no state, the states that the verb applies to."""
    if not words:
        raise Refused(f"{verb.name} what? Give a filter such as state:failed task:mail:send")
    filter = parse_filter(words, now)
    if filter.state or filter.due:
        return filter
    return msgspec.structs.replace(filter, state=verb.states)


def act_on_pages(
    actions: Actions,
    operation: Operation,
    filter: Filter,
    find: Find,
    size: int = 1000,
) -> Iterator[bool]:
    """Act on one page at a time, newest jobs first; yields whether there is more to do."""
    part_of = f"{OPERATION} {operation.id}"
    for page in find_pages(find, filter, size):
        # Never more than were counted: the person agreed to that number.
        left = None if operation.expected is None else operation.expected - operation.matched
        ids = [job.id for job in page.jobs[:left]]
        if ids:
            operation.matched += len(ids)
            result = actions.act(operation.verb, ids, operation.reason, part_of=part_of)
            operation.done += len(result.done)
            operation.secrets_gone += len(result.secrets_gone)
        more = page.after is not None and operation.matched != operation.expected
        yield more
        if not more:
            return


def allowed_actions(job: Job[Any]) -> set[str]:
    """The verbs that apply to a job in its present state, and copy."""
    verbs: set[str] = {verb.name for verb in BULK_VERBS.values() if job.state in verb.states}
    return verbs | ({"copy"} if job.state in ENDED else set())
