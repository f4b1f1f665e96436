"""Control: what people and schedules do to jobs and records. Each act leaves a row of history."""

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
        secrets: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Cancel, retry or delete jobs, in one transaction; returns the ids of those it changed.

        With `flow`, every job of that flow to which the action applies. `part_of` is the id of the
        recorded operation that this call is a part of (see `audit`).

        cancel: end jobs that have not ended. Ready and waiting ones are cancelled at once. A
        running one is marked: its worker hears of it at the next `renew`, and if the attempt ends
        before that, its own outcome stands.

        retry: make failed and cancelled jobs ready again, with counters at zero, and scheduled ones
        due now. Jobs of the flow that were cancelled because of a retried one wait again. A job
        that was itself cancelled because of a need waits until that need is retried and succeeds;
        if that need is gone, the job is left as it is. A job that waited for a signal waits for
        it again, without its time limit if that has passed. A job with secret arguments has lost
        them when it ended (`secrets.gone_secrets`): it is left as it is, and so are jobs of the
        same call that need it, unless `secrets`, values by argument name, has all of them.

        delete: remove jobs that are not running, with their arguments and results. Their history
        rows stay. With `flow`, the whole flow: its jobs, its state, its properties. Jobs of it that
        run are taken from their workers, whose later writes are stale.
        """
        ...

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        """End every job that waits for this signal, with the value (JSON) as its result.

        Returns their ids. If none waits, nothing is kept: a job that begins to wait later waits for
        the next signal. The jobs succeed in one transaction, are counted in their flows, and have a
        history row each, of the kind "attempt" and without a worker, beside the row of the signal.
        Jobs that ended or expired before are left as they are.
        """
        ...

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        """Keep a record under its id, and return it as it is kept. Repeating it changes nothing.

        A Rule is in force once this returned: nothing that a pause or a block covers starts any
        more; under a limit or an order, jobs that were claimed before continue. A second order for
        a queue, with another policy, is refused until the first is cleared.

        A Schedule that is new, or whose times changed, begins now: no earlier slot is ever decided.
        Any other change keeps its decided slots, and whether it is paused.

        A Subscription is kept as it is. A publication goes to the subscriptions that are kept when
        it is made; putting or clearing one changes no job.

        A Mark says how far a lake has this history, and is returned with its gap. Rows behind it
        are pruned `hold` seconds later than others, and are named in its gap before they go. A gap
        stays until a mark is put that names it. A mark moves forward only, unless it is `restored`.
        Refused if the position is not of this history, or if the store knows less of the lake than
        `told` says.
        """
        ...

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        """Delete a record of this kind; False if there is none.

        The id of a rule is `Rule.id` (or `rule_id(...)`), of a schedule or a subscription its name,
        of a mark its lake. The jobs of a schedule or a subscription stay.
        """
        ...

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        """Store the decisions about slots of a schedule; False if it changed since it was read.

        One transaction: jobs are stored, jobs to be replaced are cancelled, each decision has an
        event in the history, and the schedule's last decided slot moves forward. On False nothing
        was written: read the schedule again.
        """
        ...

    def audit(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        """Write a history row about what a person did, where no other verb writes one.

        `kind` is one of `views.RECORDED`; `data` says what was done and to how many.
        """
        ...
