"""What people and schedules do to jobs, rules, schedules and lakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.broker.lake_mark import Mark
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Decision, Schedule


class Control(Protocol):
    """What people and schedules do to jobs, rules, schedules and lakes."""

    def cancel(
        self,
        ids: Sequence[str],
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """End jobs that have not ended; returns those it applied to.

        A ready one is cancelled at once. A running one is told, and whichever comes first, its own
        end or the worker's word, stands. With `flow`, all jobs of that flow, in one transaction.
        `part_of` names the recorded deed of a person that this is a part of (see `record`).
        """
        ...

    def retry(
        self,
        ids: Sequence[str],
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """Make failed and cancelled jobs ready again, counters at zero; scheduled ones due now.

        In a flow, the jobs that were cancelled because of it wait again. One that was itself
        cancelled because of a need waits, until that need is retried and succeeds; if the need is
        not there any more to be retried, it is left as it is. One that waited for a signal does so
        again, without a time limit if that is over. With `flow`, all jobs of that flow that ended
        without success, in one transaction.
        """
        ...

    def delete(
        self,
        ids: Sequence[str],
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """Forget jobs that are not running: place, arguments and result. History rows stay.

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

    def set_rule(self, rule: Rule) -> Rule:
        """Put a rule in force: once this returned, nothing it covers starts. Twice is once.

        Of a limit or an order: what was claimed before goes on. An order whose queue has another
        is refused: that one is to be taken back before.
        """
        ...

    def clear_rule(
        self,
        kind: RuleKind,
        queue: str | None = None,
        task: str | None = None,
        author: str = "",
        reason: str = "",
        *,
        version: int | None = None,
        tag: tuple[str, str] | None = None,
        key: str | None = None,
        per_key: bool = False,
    ) -> bool:
        """Take back the rule that names just this; False if there was none."""
        ...

    def put_schedule(self, schedule: Schedule, author: str = "", reason: str = "") -> Schedule:
        """Keep a schedule under its name, and return it as it is kept; the same again is nothing.

        One that is new begins now, and so does one whose times changed: no slot before is ever
        decided. Any other change leaves how far it is decided, and whether it is paused, as it is.
        """
        ...

    def clear_schedule(self, name: str, author: str = "", reason: str = "") -> bool:
        """Forget a schedule; its jobs stay. False if there was none."""
        ...

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        """Decide slots of a schedule, as it was read: all of it, or nothing.

        One transaction: jobs are stored, jobs to be replaced are cancelled, the history has an
        event for each decision, and the schedule's position moves on. False, and nothing, if
        anybody changed or decided the schedule since it was read.
        """
        ...

    def set_mark(self, mark: Mark, *, back: bool = False) -> Mark:
        """Keep how far a lake has this history; returns the mark as it is kept, with its gap.

        Rows behind it are pruned `mark.hold` seconds later than others, and named in its gap before
        they go. A gap stays until a mark is set that names it. A mark goes on, never back, but with
        `back`, from a lake that was restored. Refused if the position is not of this history.
        """
        ...

    def clear_mark(self, lake: str, author: str = "", reason: str = "") -> bool:
        """Forget a lake: nothing is kept for it any more. False if there was none."""
        ...

    def record(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        """Write down in the history what a person did that no other verb has a row for.

        The kinds are those in `views.RECORDED`; `data` says what and how many.
        """
        ...
