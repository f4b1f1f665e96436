"""The schedules of an app: those in its code, and those that it makes at run time.

    @app.schedule("0 * * * *", zone="Europe/Paris")     in the code: put when a worker starts
    app.schedules.put("nightly", report, cron=...)      at run time: stays until it is removed

Nothing here decides a slot by itself; that is the timetable's, in every worker. Whatever changes a
schedule that is kept is fenced by its revision, and tried again when somebody else was quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, cast

import msgspec

from penstock.enqueue.handle import Handle
from penstock.enqueue.ids import bucket_for, in_bucket
from penstock.errors import Refused, StoreUnreachable, UnknownOutcome
from penstock.schedules.schedule import (
    RUN_NOW,
    Decision,
    Schedule,
    bucket_text,
    check_schedule,
    job_for,
    slots_after,
)
from penstock.schedules.timetable import Sending, decide_all, named, put
from penstock.task.dataset import Dataset
from penstock.task.option_checks import check_identifier, check_moment, check_seconds
from penstock.task.option_types import ScheduleOptions, check_options, names_of
from penstock.task.options import Prepared
from penstock.task.task import Task

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker

F = TypeVar("F", bound=Callable[..., Any])

_NO_SLOT = datetime(1970, 1, 1, tzinfo=UTC)  # stands in for the nominal time until there is one
_LAST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # no calendar goes further
_TRIES = 10
_OPTIONS = names_of(ScheduleOptions)


class _Declaration(NamedTuple):
    """What stands over a function."""

    name: str | None
    cron: str | None
    options: ScheduleOptions


class Schedules:
    """`app.schedules`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._in_code: dict[str, tuple[Task[..., Any], Callable[[], Schedule]]] = {}  # in the code
        self._made: dict[str, Schedule] = {}
        self._waiting: dict[Any, list[_Declaration]] = {}  # functions that are no tasks yet

    # In the code

    def decorate(
        self,
        cron: str | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]:
        """Enqueue a task at these times: `@app.schedule("0 * * * *", zone="Europe/Paris")`.

        Above or below `@app.task`. A parameter `slot: datetime` of the task receives the nominal
        time. Without a `name` the schedule is called like the task. The options are those of
        `penstock.task.option_types.ScheduleOptions`.
        """
        check_options("@app.schedule", _OPTIONS, options)

        def declare(target: F) -> F:
            arguments: Any = target
            declaration = _Declaration(name, cron, options)
            if isinstance(arguments, Dataset):
                arguments = arguments.task
            if isinstance(arguments, Task):
                self._declare(cast("Task[..., Any]", arguments), declaration)
            else:
                self._waiting.setdefault(arguments, []).append(declaration)
            return target

        return declare

    def _declare(self, task: Task[..., Any], declaration: _Declaration) -> None:
        name = check_identifier("schedule", declaration.name or task.name)
        other = self._in_code.get(name)
        # A module that is imported again says the same of its new tasks.
        if other is not None and (other[0] is task or other[0].name != task.name):
            raise Refused(
                f"two schedules are called {name}, of {other[0].name} and {task.name}; give one of"
                " them another name=..."
            )
        make = partial(
            self._make, name, task, declaration.cron, from_code=True, **declaration.options
        )
        self._in_code[name] = (task, make)
        self._made = {made: each for made, each in self._made.items() if made != name}

    def adopt(self, function: Any, task: Task[..., Any]) -> None:
        """Declare the schedules over a function that has now become a task."""
        for declaration in reversed(self._waiting.pop(function, [])):
            self._declare(task, declaration)

    def declared(self) -> Mapping[str, Schedule]:
        """The schedules of the code, as values; made once, when a worker starts."""
        for function in self._waiting:
            raise Refused(
                f"@app.schedule over {function.__qualname__}: it is not a task; write @app.task, "
                "above or below"
            )
        if len(self._made) != len(self._in_code):
            declared = self._in_code.items()
            self._made = {name: self._made.get(name) or make() for name, (_, make) in declared}
        return self._made

    # At run time

    def put(
        self,
        name: str,
        task: Prepared[..., Any],
        cron: str | None = None,
        *,
        author: str = "",
        reason: str = "",
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Keep a schedule until it is removed; the same name again replaces it.

        `task` may have options, as in `report.options(queue="slow")`. The rest is as for
        `@app.schedule`.
        """
        check_options("app.schedules.put", _OPTIONS, options)
        if name in self._in_code:
            raise Refused(f"schedule {name} is in the code of this app: change it there")
        schedule = self._make(check_identifier("schedule", name), task, cron, **options)
        broker = self._app.broker
        known = named(broker, name)
        if schedule.at is not None and schedule.at <= broker.clock.now() and known is None:
            raise Refused(f"schedule {name}: at={options.get('at')}: that is over")
        return put(broker, schedule, author, reason)

    def one_call(
        self,
        name: str,
        task: Prepared[..., Any],
        at: datetime,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Schedule:
        """The schedule of a call that is to be made once."""
        return self._make(name, task, at=at, args=args, kwargs=kwargs)

    def remove(self, name: str, author: str = "", reason: str = "") -> bool:
        """Forget a schedule, and how far it was decided; its jobs stay. False if there was none.

        One that is in the code of a running worker comes back within seconds, as a new one.
        """
        return self._app.broker.clear(Schedule, name, author, reason)

    def pause(self, name: str, author: str = "", reason: str = "") -> Schedule:
        """Decide every slot as skipped, until `resume`."""
        return pause(self._app.broker, name, author, reason)

    def resume(self, name: str, author: str = "", reason: str = "") -> Schedule:
        """Go on with the next slot; those that passed meanwhile are skipped."""
        return resume(self._app.broker, name, author, reason)

    def run_now(self, name: str, author: str = "", reason: str = "") -> Handle[Any]:
        """Enqueue its job now, with this moment as the slot; the schedule goes on as it is."""
        self._app.know_time()
        id = self._app.ids.first()
        id = run_now(self._app.broker, name, id, author, reason, self._app.sending)
        return Handle(self._app, id)

    def next(self, name: str, count: int = 10) -> list[datetime]:
        """The next slots, in the schedule's own zone."""
        schedule = expected(self._app.broker, name)
        return next_slots(schedule, self._app.broker.clock.now(), count)

    def all(self) -> list[Schedule]:
        """Every schedule of the store, whoever made it."""
        return self._app.broker.records(Schedule)

    def _make(
        self,
        name: str,
        task: Prepared[..., Any],
        cron: str | None = None,
        *,
        from_code: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        args, arguments = options.get("args", ()), dict(options.get("kwargs") or {})
        takes_slot = _takes_slot(task, args, arguments)
        if takes_slot:
            arguments["slot"] = _NO_SLOT
        job = task.job(*args, **arguments)
        if job.run_at is not None or job.unique is not None:
            raise Refused(
                f"schedule {name}: the schedule says when its jobs run, and overlap=... whether two"
                " may stand: leave out delay, at and unique"
            )
        return check_schedule(
            Schedule(
                name=name,
                job=msgspec.structs.replace(
                    job, id="", owner=None, expires_at=None, provisional=None
                ),
                cron=cron,
                zone=options.get("zone", "UTC"),
                every=check_seconds("every", options.get("every")),
                at=check_moment("at", options.get("at")),
                at_once=options.get("at_once", False),
                missed=options.get("missed", "one"),
                window=check_seconds("window", options.get("window")),
                overlap=options.get("overlap", "allow"),
                takes_slot=takes_slot,
                expires=task.chosen.expires,
                from_code=from_code,
            )
        )


def _takes_slot(task: Prepared[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the task has a parameter `slot` that the call leaves open."""
    names = task.parameters
    return "slot" in names and "slot" not in kwargs and names.index("slot") >= len(args)


def expected(broker: Broker, name: str) -> Schedule:
    """The schedule of this name; refused if there is none."""
    schedule = named(broker, name)
    if schedule is None:
        names = ", ".join(each.name for each in broker.records(Schedule)[:10]) or "none at all"
        raise Refused(f"there is no schedule {name[:200]}; there are: {names}")
    return schedule


def pause(broker: Broker, name: str, author: str = "", reason: str = "") -> Schedule:
    """Nothing is started once this returned, not even what was due before."""
    return _record_decision(broker, name, Decision(says="paused", author=author, reason=reason))


def resume(broker: Broker, name: str, author: str = "", reason: str = "") -> Schedule:
    """What fell into the pause is skipped first, also if no worker was there to do so."""
    decide_all(broker, expected(broker, name))
    return _record_decision(broker, name, Decision(says="resumed", author=author, reason=reason))


def run_now(  # noqa: PLR0917  a line of words
    broker: Broker,
    name: str,
    id: str,
    author: str = "",
    reason: str = "",
    sending: Sending = nullcontext,
) -> str:
    """Enqueue the job under this id, in the schedule's bucket; sent again it is the same job."""
    now = broker.clock.now()
    schedule = expected(broker, name)
    job = job_for(schedule, now, now, in_bucket(id, bucket_for(bucket_text(schedule))))
    try:
        with sending([job]) as [sent]:
            decision = Decision(says=RUN_NOW, slot=now, job=sent, author=author, reason=reason)
            _record_decision(broker, name, decision)
    except StoreUnreachable as error:
        raise UnknownOutcome(
            f"{error}; whether the job is stored is not known, and app.enqueue(error.jobs) is safe",
            [job],
        ) from error
    return job.id


def next_slots(schedule: Schedule, now: float, count: int) -> list[datetime]:
    """The slots that are still to come; of one that is over, none."""
    following = islice(slots_after(schedule, max(now, schedule.decided_until)), count)
    return [schedule.moment(slot) for slot in takewhile(lambda slot: slot < _LAST, following)]


def _record_decision(broker: Broker, name: str, decision: Decision) -> Schedule:
    """Record a person's decision; tried again if somebody else changed the schedule meanwhile."""
    for _ in range(_TRIES):
        schedule = expected(broker, name)
        if broker.decide_schedule(schedule, [decision]):
            return expected(broker, name)
    raise Refused(f"schedule {name} is being changed by others all the time; try again")
