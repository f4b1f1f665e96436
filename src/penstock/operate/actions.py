"""What a person may do to a store: each operation once, with the role that it needs.

The command line, REST and the pages act only through this: they translate input into its values,
and its results into lines, JSON or a page. Every change is recorded with its author and reason.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import msgspec

from penstock.app.key_file import NO_KEYS
from penstock.broker.checks import MOST_BODY_BYTES, legible
from penstock.broker.environment import ENVIRONMENT_ID, Environment
from penstock.broker.filter import Filter
from penstock.broker.lake_mark import Mark
from penstock.broker.queue_options import Options, QueueOptions, queue_id
from penstock.broker.worker_settings import WorkerSettings
from penstock.enqueue.codec import encode_value
from penstock.enqueue.copy import enqueue_copy
from penstock.enqueue.ids import Ids, parse_id
from penstock.enqueue.secrets import HIDDEN, gone_secrets, is_sealed, replaceable_secrets
from penstock.enqueue.subscription import Publication, Subscription, placed, receivers
from penstock.errors import Refused
from penstock.flows.flow import member_of
from penstock.flows.signals import check_signal
from penstock.flows.status import flow_with
from penstock.job import State
from penstock.operate.audit import OPERATION
from penstock.operate.backfill_status import parse_partition
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.datasets import pipeline_of
from penstock.operate.drop_queue import Dropped, QueueDrop, Running
from penstock.operate.find_pages import find_jobs
from penstock.operate.jobs_under_rule import Fitting, fitting
from penstock.operate.queue_settings import options_of_queues
from penstock.operate.refusals import NotFound
from penstock.operate.roles import OPERATIONS, Person, RequiredRole, Role, forbidden, needs
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.sentences import no_such_flow_text
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules import registered as scheduled
from penstock.schedules.schedule import Schedule
from penstock.task.backfill import backfill
from penstock.task.option_checks import check_identifier

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.app.clock import AnyClock
    from penstock.broker.protocol import Broker
    from penstock.job import Job
    from penstock.task.dataset import AskedPartitions
    from penstock.task.dataset_plan import PipelineRun
    from penstock.task.task import Task

MOST_REASON = 500

# Operations that are values of `act`, `set_rule` and `clear_rule`; methods declare their role.
_NAMED = [*BULK_VERBS, *RuleKind, *CLEAR_OPERATIONS.values()]
OPERATIONS.update(dict.fromkeys(_NAMED, RequiredRole(Role.OPERATE, changes=True)))
OPERATIONS.update(dict.fromkeys(["block", "unblock"], RequiredRole(Role.ADMIN, changes=True)))


class ActionResult(msgspec.Struct, frozen=True):
    """The jobs that were changed, and those that were left as they are.

    `secrets_gone` are jobs that a retry left as they are because their secret arguments are not
    stored any more: retry them with `secrets`.
    """

    done: list[str]
    left: list[str]
    secrets_gone: list[str] = []


class Stored(NamedTuple):
    """The id of the stored job; `new`: this call stored it."""

    id: str
    new: bool
    duplicate: bool  # another job holds the unique key, and this is its id


class Actions:
    """The operations on a store, in the name of one person."""

    most_ids: int | None = None  # of one call
    most_counted: int | None = None  # jobs that `matching` compares with a rule one by one

    def __init__(self, broker: Broker, person: Person) -> None:
        self._broker = broker
        self.person = person

    def check(self, operation: str) -> None:
        """Refuse unless the person has the role for it."""
        check_role(operation, self.person)

    def changed(self) -> None:
        """Called after every operation that changes something, also a failed one."""

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
        self,
        verb: str,
        ids: Sequence[str],
        reason: str = "",
        part_of: str | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> ActionResult:
        """Cancel, retry or delete jobs; `part_of` is the bulk operation that they belong to.

        `secrets` are values of secret arguments, by name, for jobs that are retried.
        """
        with self._changing(verb):
            if self.most_ids is not None and len(ids) > self.most_ids:
                raise Refused(
                    f"{len(ids):,} ids: at most {self.most_ids:,} in one call; or give a filter"
                )
            parsed = list(dict.fromkeys(parse_id(id) for id in ids))
            if secrets:
                self._check_secrets(parsed, secrets)
            done = self._broker_act(verb, parsed, reason, part_of=part_of, secrets=secrets)
        changed = set(done)
        left = [id for id in parsed if id not in changed]
        gone = [id for id in left if self.gone_secrets(id)] if verb == "retry" else []
        return ActionResult(done, left, gone)

    def act_on_flow(self, verb: str, flow: str, reason: str = "") -> tuple[str, ActionResult]:
        """Act on all jobs of a flow in one transaction; `flow` is its id, or that of a job.

        Returns the flow's id and the jobs that were changed; jobs to which the action does not
        apply are not listed.
        """
        with self._changing(verb):
            found = flow_with(self._broker, parse_id(flow))
            if found is None:
                raise NotFound(no_such_flow_text(flow))
            done = self._broker_act(verb, (), reason, flow=found.id)
            gone = self._secrets_gone_in(found.id) if verb == "retry" else []
        return found.id, ActionResult(done, [], gone)

    def gone_secrets(self, id: str) -> list[str]:
        """The secret arguments of an ended job that a retry needs to be given."""
        job = self._broker.get(parse_id(id))
        return gone_secrets(job.body, self.now) if _ended_badly(job) else []

    def _check_secrets(self, ids: Sequence[str], secrets: Mapping[str, Any]) -> None:
        for id in ids:
            job = self._broker.get(id)
            if job is not None and is_sealed(job.body):
                raise Refused(f"job {id}: its arguments are encrypted, and {NO_KEYS}")
            known = replaceable_secrets(job.body, self.now) if _ended_badly(job) else []
            for name in secrets.keys() - set(known):
                raise Refused(f"job {id}: {name[:60]!r} is not a secret argument that it has lost")
        if HIDDEN in secrets.values():
            raise Refused(f"{HIDDEN} stands for a value that is hidden: give the secret itself")
        size = len(msgspec.json.encode(secrets))
        if size > MOST_BODY_BYTES:
            raise Refused(f"secrets of {size:,} bytes: {MOST_BODY_BYTES:,} at most")

    def _secrets_gone_in(self, flow: str) -> list[str]:
        """The jobs of a flow that a retry left as they are because their secrets are gone."""
        row = self._broker.flow(flow)
        bad = [node for node in row.nodes if node.bad] if row is not None else []
        if row is None or not bad:
            return []
        query = Filter(
            task=tuple({node.task for node in bad}),
            state=(State.FAILED, State.CANCELLED),
            since=row.created_at - 60,
        )
        gone: list[str] = []
        seen, most = 0, sum(node.bad for node in bad)
        for job in find_jobs(self._broker.find, query):
            member = member_of(job.body)
            if member is None or member.id != flow:
                continue
            seen += 1
            if gone_secrets(job.body, self.now):
                gone.append(job.id)
            if seen == most:
                break
        return gone

    def _broker_act(self, verb: str, ids: Sequence[str], reason: str, **scope: Any) -> list[str]:
        action = BULK_VERBS[verb].name
        return self._broker.act(action, ids, self.author, self.reason(reason), **scope)

    @needs(Role.OPERATE, changes=True)
    def record_operation(self, id: str, data: Mapping[str, Any], reason: str = "") -> None:
        """Record how a bulk operation ended, or who stopped it."""
        self._record(OPERATION, reason, {OPERATION: id, **data})

    @needs(Role.OPERATE, changes=True)
    def copy(self, id: str, app: App | None, arguments: str | None = None, reason: str = "") -> str:
        """Store a copy of a job that has ended, with these arguments if given; the copy's id."""
        author_and_reason = (self.author, self.reason(reason))
        return enqueue_copy(self._broker, parse_id(id), author_and_reason, arguments, app)

    @needs(Role.OPERATE, changes=True)
    def enqueue(
        self, job: Job[Any], id: str | None = None, reason: str = "", *, on_record: bool = True
    ) -> Stored:
        """Store a job; a second call with the same id stores nothing."""
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
            data = {"job": job.id, "task": job.task, "queue": job.queue, "jobs": 1}
            self._record("enqueue", reason, data)
        return Stored(standing or job.id, new, duplicate=standing is not None)

    @needs(Role.OPERATE, changes=True)
    def record_enqueue(self, reason: str, data: Mapping[str, Any]) -> None:
        """Record that somebody enqueued many jobs."""
        self._record("enqueue", reason, data)

    @needs(Role.OPERATE, changes=True)
    def rerun_backfill(self, app: App, task: str, first: str, last: str, reason: str = "") -> int:
        """Run all partitions of a range again, also succeeded ones; the number of partitions."""
        ends = [parse_partition(text) for text in (first, last)]
        made = backfill(
            task_of(app, task),
            *(end if isinstance(end, int) else str(end) for end in ends),
            max_running=None,
            skip_done=False,
            step=None,
            author=self.author,
            reason=self.reason(reason),
        )
        return len(made)

    @needs(Role.OPERATE, changes=True)
    def run_datasets(
        self,
        app: App,
        asked: AskedPartitions,
        *,
        again: bool = False,
        max_running: int | None = None,
        reason: str = "",
    ) -> PipelineRun:
        """Enqueue what these datasets lack; the rest follows by itself."""
        reason = self.reason(reason) or "pipeline run"
        filled = pipeline_of(app).fill(
            asked, again=again, max_running=max_running, author_and_reason=(self.author, reason)
        )
        jobs = sum(filled.enqueued.values())
        if jobs or filled.retried:
            data = {"jobs": jobs, "retried": filled.retried, "datasets": list(asked.wanted)}
            self._record("enqueue", reason, {**data, "again": again})
        return filled

    @needs(Role.OPERATE, changes=True)
    def signal(self, name: str, value: Any = None, reason: str = "") -> list[str]:
        """End all jobs that wait for this signal, with this value; their ids."""
        check_signal(name)
        encoded = encode_value(value, f"signal {name[:60]}")
        return self._broker.signal(name, encoded, self.author, self.reason(reason))

    # Rules

    def set_rule(self, rule: Rule) -> Rule:
        """Pause, block, limit or order: the role is that of the rule's kind."""
        with self._changing(rule.kind):
            return self._broker.put(self._signed(rule))

    def clear_rule(self, rule: Rule) -> bool:
        """Remove the rule with the same kind and target; False if there was none."""
        with self._changing(CLEAR_OPERATIONS[rule.kind]):
            return self._broker.clear(Rule, rule.id, self.author, self.reason(rule.reason))

    def _signed(self, rule: Rule) -> Rule:
        reason = self.reason(rule.reason)
        return msgspec.structs.replace(rule, author=self.author, reason=reason)

    @needs(Role.VIEW)
    def matching(self, rule: Rule) -> Fitting:
        """How many due jobs the rule applies to; it need not be set."""
        return fitting(self._broker, rule, self.most_counted)

    # Queues

    @needs(Role.OPERATE, changes=True)
    def set_queue(self, queue: str, app: str, options: Options, reason: str = "") -> QueueOptions:
        """Override options of a queue, beside those that were set before; it need not exist."""
        check_identifier("queue", queue)
        record = QueueOptions(queue=queue, app=app, override=options)
        return self._broker.put(record, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def reset_queue(
        self, queue: str, app: str, names: Sequence[str] = (), reason: str = ""
    ) -> QueueOptions:
        """Take back what was set of these options, or of all: what is declared holds again."""
        check_identifier("queue", queue)
        known = {record.id: record for record in options_of_queues(self._broker, queue)}
        record = known.get(queue_id(queue, app))
        if record is None:
            raise NotFound(f"queue {queue} has no options of its own")
        said = () if record.override is None else record.override.said
        reset = QueueOptions(queue=queue, app=app, reset=tuple(names or said))
        return self._broker.put(reset, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def drop_queue(self, queue: str, app: str, running: Running, reason: str = "") -> Dropped:
        """Delete the jobs, rules and options of a queue; running jobs are cancelled, or refuse."""
        return QueueDrop(self._broker, queue, app, self.author, self.reason(reason)).run(running)

    # Workers

    @needs(Role.OPERATE, changes=True)
    def set_worker(self, settings: WorkerSettings, reason: str = "") -> WorkerSettings:
        """Change numbers of a worker while it runs, quiet or stop it; what is not named stays."""
        return self._broker.put(settings, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def reset_worker(self, name: str, reason: str = "") -> bool:
        """Have a worker be as it was started; False if nothing was set."""
        return self._broker.clear(WorkerSettings, name, self.author, self.reason(reason))

    @needs(Role.ADMIN, changes=True)
    def adopt(self, environment: Environment | None, reason: str = "") -> None:
        """Have only workers of this environment run the store's jobs; None: those of any."""
        author_and_reason = (self.author, self.reason(reason))
        if environment is None:
            self._broker.clear(Environment, ENVIRONMENT_ID, *author_and_reason)
        else:
            self._broker.put(environment, *author_and_reason)

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
        """Pause, resume, run or remove a schedule; the id of the job that a run enqueued."""
        name = self.schedule(name).name
        operations: dict[str, Callable[[str, str], object]] = {
            "pause": self.pause_schedule,
            "resume": self.resume_schedule,
            "run": self.run_schedule,
            "remove": self.remove_schedule,
        }
        result = operations[verb](name, reason)
        return result if isinstance(result, str) else None

    @needs(Role.OPERATE, changes=True)
    def put_schedule(
        self, app: App, name: str, task: str, options: Mapping[str, Any], times: Mapping[str, Any]
    ) -> Schedule:
        """Store a schedule of one of the app's tasks; `times` is what `app.schedules.put` takes."""
        reason = self.reason(times.get("reason", ""))
        given: dict[str, Any] = {**times, "author": self.author, "reason": reason}
        return app.schedules.put(name, task_of(app, task).options(**options), **given)

    @needs(Role.VIEW)
    def subscriptions(self) -> list[Subscription]:
        return self._broker.records(Subscription)

    @needs(Role.VIEW)
    def receivers(self, publication: Publication) -> list[Subscription]:
        """Who would receive this publication."""
        return [each for each, _ in receivers(self.subscriptions(), publication)]

    @needs(Role.OPERATE, changes=True)
    def publish(self, publication: Publication, reason: str = "") -> list[str]:
        """Store a job for each subscription that fits, all or none; their ids."""
        reason, ids = self.reason(reason), Ids(self._broker.clock)
        found = receivers(self._broker.records(Subscription), publication)
        jobs = placed(found, [ids.first() for _ in found], self.now)
        if jobs:
            self._broker.enqueue(jobs)
            self._record("enqueue", reason, {"topic": publication.topic, "jobs": len(jobs)})
        return [job.id for job in jobs]

    @needs(Role.OPERATE, changes=True)
    def unsubscribe(self, name: str, reason: str = "") -> bool:
        """Remove a subscription; False if there was none."""
        return self._broker.clear(Subscription, name, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def forget_lake(self, lake: str, reason: str = "") -> bool:
        return self._broker.clear(Mark, lake, self.author, self.reason(reason))

    @needs(Role.OPERATE, changes=True)
    def record_forgotten_rows(self, reason: str, data: Mapping[str, Any]) -> None:
        """Record that somebody deletes rows of a lake."""
        self._record("forget_rows", reason, data)

    @needs(Role.VIEW)
    def record_login(self, data: Mapping[str, Any], *, failed: bool = False) -> None:
        """Record that this person logged in, or that somebody unknown tried to."""
        self._record("login_failed" if failed else "login", "", data)

    @needs(Role.VIEW)
    def record_export(self, what: str, rows: int) -> None:
        """Record that somebody took a file of rows out of the store."""
        self._record("export", "", {"what": what, "rows": rows})

    # Author and reason

    @property
    def author(self) -> str:
        return legible(self.person.name)

    def reason(self, reason: str) -> str:
        """The reason as the history keeps it; refused if it is too long."""
        if len(reason) > MOST_REASON:
            raise Refused(
                f"the reason has {len(reason):,} characters: at most {MOST_REASON} are kept"
            )
        return legible(reason)

    def _record(self, kind: str, reason: str, data: Mapping[str, Any]) -> None:
        self._broker.audit(kind, self.author, self.reason(reason), dict(data))


def _ended_badly(job: Job[Any] | None) -> TypeGuard[Job[Any]]:
    return job is not None and job.state in {State.FAILED, State.CANCELLED}


def check_role(operation: str, person: Person) -> None:
    """Refuse unless the person has the role for it."""
    role = OPERATIONS[operation].role
    if person.role < role:
        raise forbidden(operation, role, person)


def task_of(app: App, name: str) -> Task[..., Any]:
    """The task of this name; refused with similar names if there is none."""
    found = app.task_named(name)
    if found is None:
        raise Refused(unknown_task(name, app))
    return found


def unknown_task(name: str, app: App) -> str:
    """The sentence about an unknown task, with similar names."""
    name, known = name[:200], sorted(app.tasks)
    # Compared by function name: a common module would make all names look similar.
    by_function = {task.rpartition(":")[2]: task for task in known}
    similar = get_close_matches(name.rpartition(":")[2], by_function, n=3)
    near = [by_function[function] for function in similar]
    if near:
        return f"there is no task {name!r}; did you mean {' or '.join(near)}?"
    if known:
        return f"there is no task {name!r}; the app has {', '.join(known[:10])}"
    return f"there is no task {name!r}: the app has none; write @app.task over a function"
