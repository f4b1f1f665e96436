"""What people and schedules do to jobs and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from penstock.broker.records import Record
from penstock.broker.values import Action
from penstock.schedules.schedule import Decision, Schedule

R = TypeVar("R", bound=Record)


class Control(Protocol):
    """What people and schedules do to jobs and records."""

    def act(
        self,
        action: Action,
        ids: Sequence[str] = (),
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """Cancel, retry or delete jobs, in one transaction; returns the ids it applied to.

        With `flow`, all jobs of that flow that it can apply to. `part_of` names the recorded
        operation of a person that this is a part of (see `audit`).

        cancel: end jobs that have not ended. A ready one is cancelled at once. A running one is
        told, and whichever comes first, its own end or the worker's word, stands.

        retry: make failed and cancelled jobs ready again, counters at zero; scheduled ones due now.
        In a flow, the jobs that were cancelled because of it wait again. One that was itself
        cancelled because of a need waits, until that need is retried and succeeds; if the need is
        not there any more to be retried, it is left as it is. One that waited for a signal does so
        again, without a time limit if that is over.

        delete: forget jobs that are not running: place, arguments and result. History rows stay.
        With `flow`, that flow as a whole: its jobs, its state, and what it is found by. Those that
        run are taken from their workers: whatever these still write of them is stale.
        """
        ...

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        """End every job that waits for this signal, with the value (JSON) as its result.

        Returns their ids; none if nobody waits, and then nothing is kept: whoever comes to wait
        later waits for the next one. They succeed in one transaction, are counted in their flows,
        and have a history row each, of the kind "attempt" and without a worker, beside the one of
        the signal itself. What ended before, by another signal, by its expiry or by a cancel, stays
        as it is; so does one whose time is over.
        """
        ...

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        """Keep a record under its id, and return it as it is kept. Twice is once.

        A Rule is in force once this returned: nothing that a pause or a block covers starts; of a
        limit or an order, what was claimed before goes on. An order whose queue has another is
        refused: that one is to be cleared first.

        A Schedule that is new begins now, and so does one whose times changed: no slot before is
        ever decided. Any other change leaves how far it is decided, and whether it is paused.

        A Mark says how far a lake has this history, and is returned with its gap. Rows behind it
        are pruned `hold` seconds later than others, and named in its gap before they go. A gap
        stays until a mark is put that names it. A mark goes on, never back, unless it is
        `restored`. Refused if the position is not of this history, or the store knows less than
        the mark says it was `told`.
        """
        ...

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        """Forget a record of this kind; False if there was none.

        The id of a rule is `Rule.id` (or `rule_id(...)`), of a schedule its name, of a mark its
        lake. The jobs of a schedule stay.
        """
        ...

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        """Decide slots of a schedule, as it was read: all of it, or nothing.

        One transaction: jobs are stored, jobs to be replaced are cancelled, the history has an
        event for each decision, and the schedule's position moves on. False, and nothing, if
        anybody changed or decided the schedule since it was read.
        """
        ...

    def audit(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        """Write down in the history what a person did that no other verb has a row for.

        The kinds are those in `views.RECORDED`; `data` says what and how many.
        """
        ...
