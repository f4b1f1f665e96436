"""What a person may do to a store: each operation once, with the role that it needs.

The command line, REST and the pages have nothing but this to act with: they translate what was
typed or sent into its values, and what it gives into lines, JSON or a page. It alone calls the
verbs of a broker that change something, and writes down who did it and why.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.broker.checks import legible
from penstock.broker.lake_mark import Mark
from penstock.enqueue.codec import encode_value
from penstock.enqueue.copy import enqueue_copy
from penstock.enqueue.ids import Ids, parse_id
from penstock.errors import Refused
from penstock.flows.signals import check_signal
from penstock.flows.status import flow_with
from penstock.operate.audit import OPERATION
from penstock.operate.backfill_status import partition_of
from penstock.operate.bulk_actions import ACTS
from penstock.operate.refusals import NotFound
from penstock.operate.roles import OPERATIONS, Declared, Person, Role, forbidden, needs
from penstock.operate.rule_fields import OFF
from penstock.operate.sentences import no_such_flow
from penstock.rules.held import Fitting, fitting
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules import registered as scheduled
from penstock.schedules.schedule import Schedule
from penstock.task.backfill import backfill

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.app.clock import AnyClock
    from penstock.broker.protocol import Broker
    from penstock.job import Job
    from penstock.task.task import Task

MOST_REASON = 500

# Those that go by a name; the others declare their role where they are.
_BY_NAME = [*ACTS, *RuleKind, *OFF.values()]
OPERATIONS.update(dict.fromkeys(_BY_NAME, Declared(Role.OPERATE, changes=True)))
OPERATIONS.update(dict.fromkeys(["block", "unblock"], Declared(Role.ADMIN, changes=True)))


class Acted(msgspec.Struct, frozen=True):
    """The jobs that it applied to, and those that were left as they are."""

    done: list[str]
    left: list[str]


class Stored(NamedTuple):
    """The job that stands under an id, or for it; `new`: this call stored it."""

    id: str
    new: bool
    standing: bool  # another job holds the unique key


class Actions:
    """A store in the hands of one person."""

    most_ids: int | None = None  # of one call
    most_counted: int | None = None  # jobs that a rule is tried on one by one

    def __init__(self, broker: Broker, person: Person) -> None:
        self._broker = broker
        self.person = person

    def check(self, operation: str) -> None:
        """Refuse unless the person has the role for it."""
        check_role(operation, self.person)

    def changed(self) -> None:
        """Something was changed, or tried to be."""

    @contextmanager
    def _changing(self, operation: str) -> Generator[None]:
        self.check(operation)
        try:
            yield
        finally:
            self.changed()

    @property
    def clock(self) -> AnyClock:
        return self._broker.clock

    @property
    def now(self) -> float:
        """The store's time."""
        return self._broker.clock.now()

    # Jobs and flows

    def act(
        self, verb: str, ids: Sequence[str], reason: str = "", part_of: str | None = None
    ) -> Acted:
        """Cancel, retry or delete jobs; `part_of` names the operation that means them all."""
        with self._changing(verb):
            if self.most_ids is not None and len(ids) > self.most_ids:
                most = f"{self.most_ids:,} at most"
                raise Refused(f"{len(ids):,} ids at a time: {most}; or give a filter")
            wanted = dict.fromkeys(parse_id(id) for id in ids)
            done = self._broker_act(verb, list(wanted), reason, part_of=part_of)
        applied = set(done)
        return Acted(done, [id for id in wanted if id not in applied])

    def act_on_flow(self, verb: str, flow: str, reason: str = "") -> tuple[str, list[str]]:
        """All jobs of the flow of this id, or of the one that has this job, in one transaction.

        The flow's id, and the jobs that it applied to.
        """
        with self._changing(verb):
            found = flow_with(self._broker, parse_id(flow))
            if found is None:
                raise NotFound(no_such_flow(flow))
            return found.id, self._broker_act(verb, (), reason, flow=found.id)

    def _broker_act(
        self, verb: str, ids: Sequence[str], reason: str, **whose: str | None
    ) -> list[str]:
        action = ACTS[verb].name
        return self._broker.act(action, ids, self.author, self.reason(reason), **whose)

    @needs(Role.OPERATE, changes=True)
    def record_operation(self, id: str, says: Mapping[str, Any], reason: str = "") -> None:
        """Write down what became of an operation by filter, or who stopped it."""
        self._record(OPERATION, reason, {OPERATION: id, **says})

    @needs(Role.OPERATE, changes=True)
    def copy(self, id: str, app: App | None, arguments: str | None = None, reason: str = "") -> str:
        """Store a copy of a job that has ended, with these arguments if there are any; its id."""
        told = (self.author, self.reason(reason))
        return enqueue_copy(self._broker, parse_id(id), told, arguments, app)

    @needs(Role.OPERATE, changes=True)
    def enqueue(
        self, job: Job[Any], id: str | None = None, reason: str = "", *, on_record: bool = True
    ) -> Stored:
        """Store a job of an app; sent again under the same id it is stored once."""
        app, reason = job.owner, self.reason(reason)
        app.know_time()
        app.make_final([job])
        if id is not None:
            job = msgspec.structs.replace(job, id=parse_id(id))
        with app.sending([job]) as jobs:
            answer = self._broker.enqueue(jobs)
        standing = answer.standing.get(job.id)
        new = standing is None and job.id not in answer.known
        if new and on_record:
            says = {"job": job.id, "task": job.task, "queue": job.queue, "jobs": 1}
            self._record("enqueue", reason, says)
        return Stored(standing or job.id, new, standing is not None)

    @needs(Role.OPERATE, changes=True)
    def record_enqueue(self, reason: str, says: Mapping[str, Any]) -> None:
        """Write down that somebody had many jobs enqueued."""
        self._record("enqueue", reason, says)

    @needs(Role.OPERATE, changes=True)
    def fill_again(self, app: App, task: str, first: str, last: str, reason: str = "") -> int:
        """Run the partitions of a range once more, those that are done too; how many they are."""
        ends = [partition_of(each) for each in (first, last)]
        made = backfill(
            task_of(app, task),
            *(each if isinstance(each, int) else str(each) for each in ends),
            max_running=None,
            skip_done=False,
            step=None,
            author=self.author,
            reason=self.reason(reason),
        )
        return len(made)

    @needs(Role.OPERATE, changes=True)
    def signal(self, name: str, value: Any = None, reason: str = "") -> list[str]:
        """End whoever waits for it with this value; their ids."""
        check_signal(name)
        encoded = encode_value(value, f"signal {name[:60]}")
        return self._broker.signal(name, encoded, self.author, self.reason(reason))

    # Rules

    def set_rule(self, rule: Rule) -> Rule:
        """Pause, block, limit or order: the role is that of the rule's kind."""
        with self._changing(rule.kind):
            return self._broker.put(self._signed(rule))

    def clear_rule(self, rule: Rule) -> bool:
        """Take back what is at the rule's place; False: there was none."""
        with self._changing(OFF[rule.kind]):
            return self._broker.clear(Rule, rule.id, self.author, self.reason(rule.reason))

    def _signed(self, rule: Rule) -> Rule:
        reason = self.reason(rule.reason)
        return msgspec.structs.replace(rule, author=self.author, reason=reason)

    @needs(Role.VIEW)
    def fitting(self, rule: Rule) -> Fitting:
        """How many jobs that are due the rule is about, before it is set."""
        return fitting(self._broker, rule, self.most_counted)

    # Schedules and lakes

    @needs(Role.VIEW)
    def schedule(self, name: str) -> Schedule:
        """The schedule of this name."""
        try:
            return scheduled.expected(self._broker, name)
        except Refused as error:
            raise NotFound(str(error)) from None

    @needs(Role.OPERATE, changes=True)
    def pause_schedule(self, name: str, reason: str = "") -> Schedule:
        return scheduled.pause(self._broker, name, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def resume_schedule(self, name: str, reason: str = "") -> Schedule:
        return scheduled.resume(self._broker, name, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def run_schedule(self, name: str, reason: str = "") -> str:
        """Enqueue the schedule's job now; the job's id."""
        id = Ids(self._broker.clock).first()
        return scheduled.run_now(self._broker, name, id, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def remove_schedule(self, name: str, reason: str = "") -> bool:
        return self._broker.clear(Schedule, name, self.author, self.reason(reason))

    def act_on_schedule(self, verb: str, name: str, reason: str = "") -> str | None:
        """Pause, resume, run or remove one that is there; the id of the job that a run made."""
        name = self.schedule(name).name
        acts: dict[str, Callable[[str, str], object]] = {
            "pause": self.pause_schedule,
            "resume": self.resume_schedule,
            "run": self.run_schedule,
            "remove": self.remove_schedule,
        }
        made = acts[verb](name, reason)
        return made if isinstance(made, str) else None

    @needs(Role.OPERATE, changes=True)
    def put_schedule(
        self, app: App, name: str, task: str, options: Mapping[str, Any], times: Mapping[str, Any]
    ) -> Schedule:
        """Keep a schedule of one of the app's tasks; `times` is what `app.schedules.put` takes."""
        reason = self.reason(times.get("reason", ""))
        given: dict[str, Any] = {**times, "author": self.author, "reason": reason}
        return app.schedules.put(name, task_of(app, task).options(**options), **given)

    @needs(Role.OPERATE, changes=True)
    def forget_lake(self, lake: str, reason: str = "") -> bool:
        return self._broker.clear(Mark, lake, self.author, self.reason(reason))

    # What is told, and by whom

    @property
    def author(self) -> str:
        return legible(self.person.name)

    def reason(self, reason: str) -> str:
        """The reason, as it goes into the history."""
        if len(reason) > MOST_REASON:
            raise Refused(f"a reason of {len(reason):,} characters: {MOST_REASON} at most")
        return legible(reason)

    def _record(self, kind: str, reason: str, says: Mapping[str, Any]) -> None:
        self._broker.audit(kind, self.author, self.reason(reason), dict(says))


def check_role(operation: str, person: Person) -> None:
    """Refuse unless the person has the role for it."""
    role = OPERATIONS[operation].role
    if person.role < role:
        raise forbidden(operation, role, person)


def task_of(app: App, name: str) -> Task[..., Any]:
    """The task of this name; else a sentence with the names that come near."""
    found = app.task_named(name)
    if found is None:
        raise Refused(unknown_task(name, app))
    return found


def unknown_task(name: str, app: App) -> str:
    """A sentence about a task that is not there, with the names that come near."""
    name, known = name[:200], sorted(app.tasks)
    # By the function alone: a module that is common to all makes any two names look alike.
    functions = {each.rpartition(":")[2]: each for each in known}
    near = [functions[each] for each in get_close_matches(name.rpartition(":")[2], functions, n=3)]
    if near:
        return f"there is no task {name!r}; did you mean {' or '.join(near)}?"
    if known:
        return f"there is no task {name!r}; the app has {', '.join(known[:10])}"
    return f"there is no task {name!r}: the app has none; write @app.task over a function"
