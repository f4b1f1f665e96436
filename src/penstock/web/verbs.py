"""What a person may do to a store: the broker's verbs, each with the role that it needs.

Pages and REST alike have nothing but this to act with, and so cannot forget to ask. Whatever a verb
hands out has its declared secrets hidden. A verb that changes something is refused in a request
that only looks (GET), whoever asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.app.app import App
from penstock.app.clock import AnyClock
from penstock.broker.checks import legible
from penstock.broker.filter import Filter
from penstock.broker.gauge import Gauge, last_gauges
from penstock.broker.lake_mark import Mark
from penstock.broker.position import Position
from penstock.broker.protocol import Broker
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.enqueue.copy import enqueue_copy
from penstock.enqueue.ids import Ids, parse_id
from penstock.enqueue.secrets import HIDDEN, redact, without_arguments
from penstock.errors import Refused
from penstock.flows.flow import FlowPage, FlowRow, NodeRow
from penstock.flows.signals import check_signal
from penstock.flows.status import JobsByNode, Took, flow_with, jobs_of, look_at, times_of
from penstock.job import Job, State
from penstock.operate.audit import MOST_LOOKED, AuditQuery, Deeds, read_audit
from penstock.operate.backfill_status import (
    Looked,
    backfilled_tasks,
    look_at_backfill,
    partition_of,
)
from penstock.operate.bulk_actions import ACTS
from penstock.operate.doctor import Finding, examine, examine_jobs, promise_of
from penstock.rules.held import Fitting, fitting
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules import registered as scheduled
from penstock.schedules.schedule import Schedule
from penstock.task.backfill import backfill
from penstock.task.task import Task
from penstock.web.access import Person, Role
from penstock.web.count_cache import Counting
from penstock.web.required_role import VERBS, Forbidden, NeedsPost
from penstock.web.required_role import needs as _needs

MOST_REASON = 500
MOST_IDS = 1000
MOST_COUNTED = 5000  # jobs that a rule is tried on one by one


class Verbs:
    """The store in the hands of one person, for one request."""

    def __init__(
        self,
        broker: Broker,
        person: Person,
        *,
        may_change: bool,
        hide_arguments: bool = False,
        counting: Counting | None = None,
    ) -> None:
        self._broker = broker
        self.person = person
        self.may_change = may_change
        self.hide_arguments = hide_arguments
        self.counting = counting or Counting()

    def check(self, verb: str) -> None:
        """Refuse unless the person has the role for it, and the request may do such a thing."""
        role, changes = VERBS[verb]
        if self.person.role < role:
            to = verb.replace("_", " ")
            raise Forbidden(
                f"{to} needs the role {role}; {self.person.name} has {self.person.role}"
            )
        if changes and not self.may_change:
            raise NeedsPost(f"{verb} changes something: send it with POST")

    @property
    def clock(self) -> AnyClock:
        return self._broker.clock

    @property
    def now(self) -> float:
        """The store's time."""
        return self._broker.clock.now()

    # Look

    @_needs(Role.VIEW)
    def get(self, id: str) -> Job[Any] | None:
        job = self._broker.get(parse_id(id))
        return None if job is None else self._shown(job)

    @_needs(Role.VIEW)
    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        """Jobs that match."""
        asked = filter.args or (filter.exclude is not None and filter.exclude.args)
        if asked and self.hide_arguments:
            raise Refused("arguments are hidden here: leave out arg.NAME")
        page = self._broker.find(filter, after or None, limit)
        return Page([self._shown(job) for job in page.jobs], page.after, page.examined)

    @_needs(Role.VIEW)
    def count(self) -> list[Count]:
        return self.counting.counts(self._broker.count)

    @_needs(Role.VIEW)
    def history(
        self,
        after: Position | None = None,
        limit: int = 100,
        job: str | None = None,
        *,
        kind: str | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        id = None if job is None else parse_id(job)
        rows = self._broker.history(after, limit, id, kind=kind, before=before)
        return [self._told(row) for row in rows] if self.hide_arguments else rows

    @_needs(Role.VIEW)
    def audit(
        self,
        wanted: AuditQuery,
        before: Position | None = None,
        limit: int = 100,
        most_looked: int = MOST_LOOKED,
    ) -> Deeds:
        """Who did what, newest first."""
        return read_audit(self._broker, wanted, before, limit, most_looked)

    @_needs(Role.VIEW)
    def promise(self, url: str | None) -> str | None:
        """What an accepted job survives here; None where no URL says which store it is."""
        return None if url is None else promise_of(url)

    @_needs(Role.VIEW)
    def examine(self, url: str | None, known: Mapping[str, int] | None = None) -> list[Finding]:
        """What the doctor finds; of a store without a URL, what can be told from inside."""
        return examine_jobs(self._broker, known) if url is None else examine(url, known)

    @_needs(Role.VIEW)
    def decisions(self, limit: int = 1000) -> list[Event]:
        """The last decisions of schedules, oldest first."""
        return self._broker.history(None, limit, kind="schedule")

    @_needs(Role.VIEW)
    def gauges(self, limit: int = 1000) -> dict[str, tuple[float, Gauge]]:
        """The last gauge of each queue, and when that was; of the queues that were gauged last."""
        return last_gauges(self._broker.history(None, limit, kind="gauge"))

    @_needs(Role.VIEW)
    def notes(self, id: str, kind: str | None = None) -> list[Note]:
        notes = self._broker.notes(parse_id(id), kind)
        if not self.hide_arguments:
            return notes
        return [note for note in notes if note.kind in {"progress", "log"}]

    @_needs(Role.VIEW)
    def why(self, id: str) -> Why:
        return self._broker.why(parse_id(id))

    @_needs(Role.VIEW)
    def rules(self) -> list[Rule]:
        return self._broker.records(Rule)

    @_needs(Role.VIEW)
    def fitting(self, rule: Rule) -> Fitting:
        """How many jobs that are due the rule is about, before it is set."""
        return fitting(self._broker, rule, MOST_COUNTED)

    @_needs(Role.VIEW)
    def workers(self) -> list[WorkerRow]:
        return self._broker.workers()

    @_needs(Role.VIEW)
    def schedules(self) -> list[Schedule]:
        return [
            msgspec.structs.replace(each, job=self._shown(each.job))
            for each in self._broker.records(Schedule)
        ]

    @_needs(Role.VIEW)
    def flow(self, id: str) -> FlowRow | None:
        """The flow of this id, or the one that has this job."""
        found = flow_with(self._broker, parse_id(id))
        return None if found is None else self._flow_shown(found)

    @_needs(Role.VIEW)
    def look_at_flow(self, flow: FlowRow) -> JobsByNode:
        """What of a flow runs, failed, and is waited for."""
        return look_at(self._broker, flow)

    @_needs(Role.VIEW)
    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        page = self._broker.flows(name, find, None if not after else parse_id(after), limit)
        return FlowPage([self._flow_shown(each) for each in page.flows], page.after)

    @_needs(Role.VIEW)
    def flow_jobs(
        self, flow: FlowRow, node: str, state: State | None = None, after: str | None = None
    ) -> Page:
        """Jobs of a node, newest first."""
        page = jobs_of(self._broker, flow, node, state, after or None)
        return Page([self._shown(job) for job in page.jobs], page.after, page.examined)

    @_needs(Role.VIEW)
    def flow_times(self, flow: FlowRow, nodes: Sequence[NodeRow]) -> dict[str, Took]:
        """How long these nodes took so far."""
        return times_of(self._broker, flow, nodes)

    @_needs(Role.VIEW)
    def backfilled_tasks(self) -> dict[str, int]:
        return backfilled_tasks(self._broker, self._broker.records(Rule))

    @_needs(Role.VIEW)
    def backfill(self, task: str) -> Looked:
        """Where each partition of a task is; of their jobs nothing else is told."""
        looked = look_at_backfill(self._broker, task)
        return looked._replace(
            partitions=[each._replace(job=self._shown(each.job)) for each in looked.partitions]
        )

    @_needs(Role.VIEW)
    def lakes(self) -> list[Mark]:
        return self._broker.records(Mark)

    # Look after

    @_needs(Role.OPERATE, changes=True)
    def cancel(self, ids: Sequence[str], reason: str = "", **whose: str | None) -> list[str]:
        return self._act("cancel", ids, reason, **whose)

    @_needs(Role.OPERATE, changes=True)
    def retry(self, ids: Sequence[str], reason: str = "", **whose: str | None) -> list[str]:
        return self._act("retry", ids, reason, **whose)

    @_needs(Role.OPERATE, changes=True)
    def delete(self, ids: Sequence[str], reason: str = "", **whose: str | None) -> list[str]:
        return self._act("delete", ids, reason, **whose)

    def act(
        self, verb: str, ids: Sequence[str], reason: str = "", **whose: str | None
    ) -> list[str]:
        """One of the three by its name."""
        acts = {"cancel": self.cancel, "retry": self.retry, "delete": self.delete}
        return acts[verb](ids, reason, **whose)

    def check_act(self, verb: str, reason: str) -> None:
        """Refuse what `act` would refuse, whatever the jobs."""
        self.act(verb, (), reason)

    def _act(
        self,
        verb: str,
        ids: Sequence[str],
        reason: str,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        if len(ids) > MOST_IDS:
            raise Refused(f"{len(ids):,} ids at a time: {MOST_IDS:,} at most; or give a filter")
        action, asked = ACTS[verb].name, (self._author, self._reason(reason))
        if flow is not None:
            return self._broker.act(action, (), *asked, flow=parse_id(flow))
        return self._broker.act(action, [parse_id(id) for id in ids], *asked, part_of=part_of)

    @_needs(Role.OPERATE, changes=True)
    def record_operation(self, id: str, says: Mapping[str, Any], reason: str = "") -> None:
        """Write down what became of it, or who stopped it."""
        data = {"operation": id, **says}
        self._broker.audit("operation", self._author, self._reason(reason), data)

    @_needs(Role.OPERATE, changes=True)
    def enqueue(
        self, app: App, task: str, arguments: bytes, options: Mapping[str, Any], reason: str = ""
    ) -> str:
        """Store a job of one of the app's tasks; its id, or that of the unique one that stands."""
        found, why = self._task(app, task), self._reason(reason)
        args, kwargs = found.codec.decode(arguments)
        chosen: dict[str, Any] = {"headers": {"author": self._author}, **options}
        id = chosen.pop("id", None)
        job = found.options(**chosen).job(*args, **kwargs)
        app.know_time()
        app.make_final([job])
        if id is not None:
            job = msgspec.structs.replace(job, id=parse_id(id))
        with app.sending([job]) as jobs:
            answer = app.broker.enqueue(jobs)
        if job.id not in answer.known and job.id not in answer.standing:
            data = {"job": job.id, "task": job.task, "queue": job.queue, "jobs": 1}
            self._broker.audit("enqueue", self._author, why, data)
        return answer.standing.get(job.id, job.id)

    @_needs(Role.OPERATE, changes=True)
    def copy(self, id: str, app: App | None, arguments: str | None = None, reason: str = "") -> str:
        """Store a copy of a job that has ended, with these arguments if there are any; its id."""
        if arguments is not None and self.hide_arguments:
            raise Refused("arguments are hidden here: copy the job as it is")
        told = (self._author, self._reason(reason))
        return enqueue_copy(self._broker, parse_id(id), told, arguments, app)

    @_needs(Role.OPERATE, changes=True)
    def fill_again(self, app: App, task: str, first: str, last: str, reason: str = "") -> int:
        """Run the partitions of a range once more, those that are done too; how many they are."""
        ends = [partition_of(each) for each in (first, last)]
        made = backfill(
            self._task(app, task),
            *(each if isinstance(each, int) else str(each) for each in ends),
            max_running=None,
            skip_done=False,
            step=None,
            author=self._author,
            reason=self._reason(reason),
        )
        return len(made)

    @_needs(Role.OPERATE, changes=True)
    def signal(self, name: str, value: bytes = b"null", reason: str = "") -> list[str]:
        return self._broker.signal(check_signal(name), value, self._author, self._reason(reason))

    @_needs(Role.OPERATE, changes=True)
    def pause(self, rule: Rule) -> Rule:
        return self._set(rule, RuleKind.PAUSE)

    @_needs(Role.OPERATE, changes=True)
    def resume(self, rule: Rule) -> bool:
        return self._clear(rule, RuleKind.PAUSE)

    @_needs(Role.ADMIN, changes=True)
    def block(self, rule: Rule) -> Rule:
        return self._set(rule, RuleKind.BLOCK)

    @_needs(Role.ADMIN, changes=True)
    def unblock(self, rule: Rule) -> bool:
        return self._clear(rule, RuleKind.BLOCK)

    @_needs(Role.OPERATE, changes=True)
    def limit(self, rule: Rule) -> Rule:
        return self._set(rule, RuleKind.LIMIT)

    @_needs(Role.OPERATE, changes=True)
    def limit_off(self, rule: Rule) -> bool:
        return self._clear(rule, RuleKind.LIMIT)

    @_needs(Role.OPERATE, changes=True)
    def order(self, rule: Rule) -> Rule:
        return self._set(rule, RuleKind.ORDER)

    @_needs(Role.OPERATE, changes=True)
    def order_off(self, rule: Rule) -> bool:
        return self._clear(rule, RuleKind.ORDER)

    def _set(self, rule: Rule, kind: RuleKind) -> Rule:
        self._about_something(rule, kind)
        told = {"author": self._author, "reason": self._reason(rule.reason)}
        return self._broker.put(msgspec.structs.replace(rule, **told))

    def _clear(self, rule: Rule, kind: RuleKind) -> bool:
        self._about_something(rule, kind)
        return self._broker.clear(Rule, rule.id, self._author, self._reason(rule.reason))

    def _about_something(self, rule: Rule, kind: RuleKind) -> None:
        # What the role was asked for is what is done.
        if rule.kind is not kind:
            raise Refused(f"a {rule.kind} where a {kind} was expected")
        if rule.target == "everything":
            raise Refused(f"{kind} what? Name a queue, a task, a version, a tag or a key")

    @_needs(Role.OPERATE, changes=True)
    def pause_schedule(self, name: str, reason: str = "") -> Schedule:
        return scheduled.pause(self._broker, name, self._author, self._reason(reason))

    @_needs(Role.OPERATE, changes=True)
    def resume_schedule(self, name: str, reason: str = "") -> Schedule:
        return scheduled.resume(self._broker, name, self._author, self._reason(reason))

    @_needs(Role.OPERATE, changes=True)
    def run_schedule(self, name: str, reason: str = "") -> str:
        """Enqueue the schedule's job now; the job's id."""
        id = Ids(self._broker.clock).first()
        return scheduled.run_now(self._broker, name, id, self._author, self._reason(reason))

    @_needs(Role.OPERATE, changes=True)
    def remove_schedule(self, name: str, reason: str = "") -> bool:
        return self._broker.clear(Schedule, name, self._author, self._reason(reason))

    @_needs(Role.OPERATE, changes=True)
    def put_schedule(
        self, app: App, name: str, task: str, options: Mapping[str, Any], times: Mapping[str, Any]
    ) -> Schedule:
        """Keep a schedule of one of the app's tasks; `times` is what `app.schedules.put` takes."""
        reason = self._reason(times.get("reason", ""))
        given: dict[str, Any] = {**times, "author": self._author, "reason": reason}
        return app.schedules.put(name, self._task(app, task).options(**options), **given)

    @_needs(Role.OPERATE, changes=True)
    def forget_lake(self, lake: str, reason: str = "") -> bool:
        return self._broker.clear(Mark, lake, self._author, self._reason(reason))

    # What is told, and by whom

    def _task(self, app: App, name: str) -> Task[..., Any]:
        found = app.task_named(name)
        if found is None:
            known = ", ".join(sorted(app.tasks)[:10]) or "none"
            raise Refused(f"there is no task {name[:200]!r} here; there are: {known}")
        return found

    @property
    def _author(self) -> str:
        return legible(self.person.name)

    def _reason(self, reason: str) -> str:
        if len(reason) > MOST_REASON:
            raise Refused(f"a reason of {len(reason):,} characters: {MOST_REASON} at most")
        return legible(reason)

    def _shown(self, job: Job[Any]) -> Job[Any]:
        if self.hide_arguments:
            return msgspec.structs.replace(
                job, body=without_arguments(job.body), search={}, result=job.result and _HIDDEN_JSON
            )
        return msgspec.structs.replace(job, body=redact(job.body))

    def _flow_shown(self, flow: FlowRow) -> FlowRow:
        if not self.hide_arguments:
            return flow
        return msgspec.structs.replace(flow, state=_HIDDEN_JSON)

    def _told(self, row: Event) -> Event:
        return msgspec.structs.replace(
            row, body=row.body and without_arguments(row.body), result=row.result and _HIDDEN_JSON
        )


_HIDDEN_JSON = msgspec.json.encode(HIDDEN)
