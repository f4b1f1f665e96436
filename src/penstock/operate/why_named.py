"""Why a queue, a task, a worker, a flow or a schedule is as it is: findings with what helps.

The same findings on the command line (`penstock why queue:mail`), over REST and on the pages. As
with the doctor, red is what stands still or will; a green one is worth knowing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.gauge import last_gauges
from penstock.broker.views import Count, Event, WorkerRow, by_queue
from penstock.errors import Refused
from penstock.flows.flow import WAIT_TASK, FlowRow, NodeRow
from penstock.flows.status import JobsByNode, flow_with, jobs_of, look_at
from penstock.job import ENDED, State
from penstock.operate.doctor import Colour, Finding, rule_findings, task_findings
from penstock.operate.flow_progress import flow_progress
from penstock.operate.refusals import NotFound
from penstock.operate.sentences import jobs_text, no_such_flow_text
from penstock.operate.time_text import duration_text, relative_time, time_text
from penstock.operate.trends import TrendFilter, slow_text
from penstock.operate.worker_health import worker_health
from penstock.rules.rule import Rule
from penstock.run.error_text import headline
from penstock.schedules.schedule import Schedule
from penstock.schedules.status import AHEAD, LATE, LEFT, slots_to_come, state_of

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

MOST_LISTED = 5
LATE_SECONDS = 60.0  # a due job that waits longer is worth a yellow
STALE_SECONDS = 180.0  # a worker writes gauges every minute
_GREEN, _YELLOW, _RED = Colour.GREEN, Colour.YELLOW, Colour.RED


def why_named(broker: Broker, target: str) -> tuple[str, list[Finding]]:
    """What `target` is, as `queue:mail`, and the findings about it.

    A name without its kind may be of one thing only; an id may be that of a flow.
    """
    kind, _, name = target.partition(":")
    if kind in _KINDS and name:
        return target, _KINDS[kind](broker, name)
    found = _things_named(broker, target)
    if len(found) > 1:
        choice = " or ".join(f"`penstock why {shlex.quote(each)}`" for each in found)
        raise Refused(f"{target!r} is the name of several things: {choice}")
    if not found:
        near = get_close_matches(target, _known_names(broker), n=3)
        similar = f"; similar: {', '.join(near)}" if near else ""
        raise NotFound(
            f"nothing here is called {target[:100]!r}: no job, queue, task, worker or schedule"
            f"{similar}"
        )
    kind, _, name = found[0].partition(":")
    return found[0], _KINDS[kind](broker, name)


def _things_named(broker: Broker, name: str) -> list[str]:
    counts, workers = broker.count(), broker.workers()
    return [
        f"{kind}:{name}"
        for kind, known in (
            ("queue", queues_known(broker, counts, workers)),
            ("task", tasks_known(broker, counts, workers)),
            ("worker", {row.id for row in workers}),
            ("schedule", {each.name for each in broker.records(Schedule)}),
        )
        if name in known
    ]


def _known_names(broker: Broker) -> list[str]:
    counts, workers = broker.count(), broker.workers()
    names = queues_known(broker, counts, workers) | tasks_known(broker, counts, workers)
    return sorted(names | {each.name for each in broker.records(Schedule)})


def queues_known(broker: Broker, counts: Sequence[Count], workers: Sequence[WorkerRow]) -> set[str]:
    """Queues that hold jobs, have a rule, are served by name, or held jobs a short time ago."""
    names = {count.queue for count in counts} | {
        rule.queue for rule in broker.records(Rule) if rule.queue is not None
    }
    names |= {queue for row in workers for queue in row.queues or ()}
    names |= {row.queue for row in _recent_attempts(broker) if row.queue is not None}
    return names | set(last_gauges(broker.history(None, 1000, kind="gauge")))


def tasks_known(broker: Broker, counts: Sequence[Count], workers: Sequence[WorkerRow]) -> set[str]:
    """Tasks of jobs that have not ended, or failed, of workers, and of attempts lately."""
    names = {count.task for count in counts} | {task for row in workers for task in row.tasks}
    return names | {row.task for row in _recent_attempts(broker) if row.task is not None}


def _recent_attempts(broker: Broker) -> Sequence[Event]:
    return broker.history(None, 1000, kind="attempt")


# A queue, and a task in all queues


def _why_queue(broker: Broker, name: str) -> list[Finding]:
    workers = broker.workers()
    counts = broker.count()
    if name not in (known := queues_known(broker, counts, workers)):
        near = get_close_matches(name, sorted(known), n=3)
        similar = f"; similar: {', '.join(near)}" if near else ""
        raise NotFound(f"no queue here is called {name[:100]!r}{similar}")
    own = [count for count in counts if count.queue == name]
    whole = (by_queue(own) or [Count(name, "")])[0]
    rules = [rule for rule in broker.records(Rule) if _is_about(rule, name, own)]
    return [
        _places(whole),
        *rule_findings(rules, own, broker.clock.now()),
        *_served(whole, workers, name),
        *(each for each in task_findings(workers, own, None) if each.colour is not _GREEN),
        *_oldest(broker, name),
        *_slow(broker, TrendFilter(queue=name)),
        *_failed(whole.failed, f"queue:{shlex.quote(name)}"),
    ]


def _why_task(broker: Broker, name: str) -> list[Finding]:
    workers = broker.workers()
    counts = broker.count()
    if name not in (known := tasks_known(broker, counts, workers)):
        near = get_close_matches(name, sorted(known), n=3)
        similar = f"; similar: {', '.join(near)}" if near else ""
        raise NotFound(f"no task here is called {name[:100]!r}{similar}")
    own = [count for count in counts if count.task == name]
    everywhere = [msgspec.structs.replace(count, queue="") for count in own]
    whole = (by_queue(everywhere) or [Count("", name)])[0]
    rules = [
        rule
        for rule in broker.records(Rule)
        if rule.task in {None, name} and (rule.queue is None or rule.queue in _queues_of(own))
    ]
    return [
        _places(whole),
        *rule_findings(rules, own, broker.clock.now()),
        *_not_served(own, workers),
        *(each for each in task_findings(workers, own, None) if each.colour is not _GREEN),
        *_slow(broker, TrendFilter(task=name)),
        *_failed(whole.failed, f"task:{shlex.quote(name)}"),
    ]


_PLACES = ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed")


def _queues_of(counts: Sequence[Count]) -> set[str]:
    return {count.queue for count in counts}


def _is_about(rule: Rule, queue: str, counts: Sequence[Count]) -> bool:
    if rule.queue is not None:
        return rule.queue == queue
    return rule.task is None or any(rule.task == count.task for count in counts)


def _places(whole: Count) -> Finding:
    numbers = [f"{getattr(whole, place):,} {place}" for place in _PLACES if getattr(whole, place)]
    says = ", ".join(numbers) or "no job is waiting, running or failed"
    return Finding("jobs", _GREEN, says)


def _served(whole: Count, workers: Sequence[WorkerRow], queue: str) -> list[Finding]:
    """Who serves the queue; nobody is red while jobs are ready."""
    alive = [row for row in workers if row.alive and row.queues != ()]
    serving = [row for row in alive if row.queues is None or queue in row.queues]
    colour = _RED if whole.ready else _YELLOW
    if not alive:
        if lapsed := [row for row in workers if not row.alive]:
            says = f"no worker is alive; {lapsed[0].id} no longer renews its lease"
            command = "penstock doctor; penstock worker MODULE:APP"
            return [Finding("workers", colour, says, command)]
        return [Finding("workers", colour, "no worker is alive", "penstock worker MODULE:APP")]
    if not serving:
        others = sorted({name for row in alive for name in row.queues or ()})[:MOST_LISTED]
        says = f"no live worker serves queue {queue}; they serve {', '.join(others)}"
        command = f"penstock worker MODULE:APP --queues {shlex.quote(queue)}"
        return [Finding("workers", colour, says, command)]
    running = sum(row.running for row in serving)
    workers_text = "1 worker serves it" if len(serving) == 1 else f"{len(serving)} workers serve it"
    return [Finding("workers", _GREEN, f"{workers_text}, and {_run(running)} in all queues")]


def _not_served(own: Sequence[Count], workers: Sequence[WorkerRow]) -> list[Finding]:
    """The first queue of the task's jobs that nobody serves, if there is one."""
    found = (each for count in by_queue(own) for each in _served(count, workers, count.queue))
    return [each for each in found if each.colour is not _GREEN][:1]


def _run(jobs: int) -> str:
    return f"{jobs_text(jobs)} {'runs' if jobs == 1 else 'run'}"


def _oldest(broker: Broker, queue: str) -> list[Finding]:
    """How long the oldest due job waits, and whether the queue grows."""
    now = broker.clock.now()
    rows = broker.history(None, 1000, kind="gauge")
    at, gauge = last_gauges(rows).get(queue, (0.0, None))
    if gauge is None or now - at > STALE_SECONDS or gauge.oldest is None:
        return []
    waits = f"its oldest due job waited {duration_text(gauge.oldest)}"
    when = f"at {time_text(at)[11:16]} UTC"
    before = last_gauges([row for row in rows if row.at <= at - 600]).get(queue)
    trend = ""
    if before is not None and before[0] > at - 1200:
        change = gauge.ready - before[1].ready
        since = duration_text(at - before[0])
        trend = f"; {abs(change):,} {'more' if change > 0 else 'fewer'} ready than {since} before"
    late = gauge.oldest > LATE_SECONDS and not gauge.limited
    remedy = "penstock worker MODULE:APP on another machine, or more --threads" if late else ""
    return [Finding("wait", _YELLOW if late else _GREEN, f"{waits} {when}{trend}", remedy)]


def _slow(broker: Broker, only: TrendFilter) -> list[Finding]:
    says = slow_text(broker.history, broker.clock.now(), only)
    words = [f"task:{only.task}"] if only.task else [f"queue:{only.queue}"]
    remedy = shlex.join(["penstock", "find", *words, "state:running"])
    return [Finding("slow", _YELLOW, says, remedy)] if says else []


def _failed(number: int, words: str) -> list[Finding]:
    if not number:
        return []
    says = f"{jobs_text(number)} failed and {'is' if number == 1 else 'are'} kept"
    return [Finding("failed", _YELLOW, says, f"penstock find state:failed {words}")]


# A worker


def _why_worker(broker: Broker, name: str) -> list[Finding]:
    rows, now = broker.workers(), broker.clock.now()
    row = next((row for row in rows if row.id == name), None)
    if row is None:
        near = get_close_matches(name, [row.id for row in rows], n=3)
        similar = f"; similar: {', '.join(near)}" if near else ""
        raise NotFound(f"no worker here is called {name[:100]!r}{similar}")
    health, says = worker_health(row, now)
    colour = {"failed": _RED}.get(health, _GREEN)
    where = f"{row.host}, pid {row.pid}" if row.host else "host unknown"
    began = relative_time(row.started_at, now) if row.started_at else "long ago"
    remedy = "" if colour is _GREEN else _worker_remedy(row)
    findings = [
        Finding("worker", colour, f"{row.state}: {says} ({where}, started {began})", remedy)
    ]
    queues = "every queue" if row.queues is None else ", ".join(row.queues) or "no queue"
    tags = f", tags {', '.join(sorted(row.tags))}" if row.tags else ""
    findings.append(Finding("serves", _GREEN, f"{queues}, {len(row.tasks)} tasks{tags}"))
    newest = [each for each in rows if each.alive and each.app == row.app and each.queues != ()]
    last = max(newest, key=lambda each: each.started_at, default=row)
    if row.code and last.code and row.code != last.code and row.started_at < last.started_at:
        findings.append(
            Finding(
                "code",
                _YELLOW,
                f"it runs other code than {last.id}, which started later",
                "restart it: SIGTERM lets its jobs finish",
            )
        )
    running = broker.find(Filter(state=(State.RUNNING,)), None, 1000).jobs
    held = sorted(
        (job for job in running if job.worker == row.id), key=lambda job: job.claimed_at or now
    )
    findings += [
        Finding(
            "runs",
            _GREEN,
            f"{job.task} for {duration_text(now - (job.claimed_at or now))}",
            f"penstock show {job.id}",
        )
        for job in held[:MOST_LISTED]
    ]
    if row.stale:
        findings.append(
            Finding(
                "late",
                _YELLOW,
                f"{row.stale:,} outcomes came too late: another attempt held the job by then",
                "a longer --lease, or fewer jobs that block the whole process",
            )
        )
    return findings


def _worker_remedy(row: WorkerRow) -> str:
    if not row.alive:
        return "a live worker makes its jobs ready again within one lease; penstock doctor"
    return "look at its log; SIGTERM, and start it again"


# A flow


def _why_flow(broker: Broker, name: str) -> list[Finding]:
    flow = flow_with(broker, name)
    if flow is None:
        raise NotFound(no_such_flow_text(name))
    look, now = look_at(broker, flow), broker.clock.now()
    progress = flow_progress(flow)
    ended = f"{progress.jobs - progress.left:,} of {progress.jobs:,} jobs ended"
    bad = f", {progress.bad:,} of them without success" if progress.bad else ""
    if flow.ended_at is not None:
        took = duration_text(flow.ended_at - flow.created_at)
        says = f"it has ended: {ended}{bad}, after {took}"
    else:
        says = f"{ended}{bad}, in {duration_text(now - flow.created_at)}"
    colour = _RED if progress.bad else _GREEN
    remedy = f"penstock retry --flow {flow.id}" if progress.bad else f"penstock flow {flow.id}"
    findings = [Finding("flow", colour, says, remedy)]
    for node in flow.nodes:
        findings += _why_node(broker, flow, node, look, now)
    return findings


def _why_node(
    broker: Broker, flow: FlowRow, node: NodeRow, look: JobsByNode, now: float
) -> list[Finding]:
    """What stops a node, or what it does; nothing of one that waits for others, or succeeded."""
    if failed := look.failed.get(node.id):
        error = headline(failed[0].error) or failed[0].reason or "failed"
        says = f"{node.bad:,} of {jobs_text(node.jobs)} did not succeed: {error}"
        return [Finding(node.task, _RED, says, f"penstock show {failed[0].id}")]
    if node.id in look.awaited:
        signal = look.awaited[node.id]
        says = f"waits for the signal {signal!r}"
        return [Finding(node.task, _YELLOW, says, f"penstock signal {shlex.quote(signal)}")]
    if not node.jobs_left or node.needs_left or node.task == WAIT_TASK:
        return []
    if running := look.running.get(node.id):
        first = running[0]
        longest = duration_text(now - (first.claimed_at or now))
        says = f"{len(running):,} running, the longest for {longest} on {first.worker}"
        return [Finding(node.task, _GREEN, says, f"penstock show {first.id}")]
    page = jobs_of(broker, flow, node.id, State.READY, None)
    if not page.jobs:
        return []
    why = broker.why(page.jobs[0].id)
    colour = _GREEN if why.cause in {"next", "time"} else _YELLOW
    return [Finding(node.task, colour, f"{jobs_text(node.jobs_left)} left. {why.sentence}")]


# A schedule


def _why_schedule(broker: Broker, name: str) -> list[Finding]:
    now = broker.clock.now()
    schedules = {each.name: each for each in broker.records(Schedule)}
    schedule = schedules.get(name)
    if schedule is None:
        near = get_close_matches(name, sorted(schedules), n=3)
        similar = f"; similar: {', '.join(near)}" if near else ""
        raise NotFound(f"no schedule here is called {name[:100]!r}{similar}")
    state, quoted = state_of(schedule, now), shlex.quote(name)
    remedies = {
        LATE: "penstock worker MODULE:APP",
        LEFT: f"start a worker that has its code, or penstock schedules {quoted} --remove",
        AHEAD: f"penstock schedules {quoted} --remove, and put it again",
        "paused": f"penstock schedules {quoted} --resume",
    }
    colour = _GREEN if state in {"on", "over"} else _YELLOW if state == "paused" else _RED
    findings = [Finding("schedule", colour, state, remedies.get(state, ""))]
    if schedule.last is not None:
        last = schedule.last
        says = f"{last.says}, for {time_text(last.slot)}"
        yellow = last.says.startswith("skipped") or "cancelled" in last.says
        findings.append(Finding("last slot", _YELLOW if yellow else _GREEN, says))
    findings += _last_job(broker, schedule)
    for slot in slots_to_come(schedule, now, 1):
        at = slot.timestamp()
        says = f"{time_text(at)} ({relative_time(at, now)})"
        findings.append(Finding("next slot", _GREEN, says, f"penstock schedules {quoted}"))
    counts = [Count(schedule.job.queue, schedule.job.task, scheduled=1, app=schedule.job.app)]
    unknown = [
        each for each in task_findings(broker.workers(), counts, None) if each.colour is _RED
    ]
    return findings + [
        Finding("task", _RED, f"no live worker knows {schedule.job.task}", each.remedy)
        for each in unknown
    ]


def _last_job(broker: Broker, schedule: Schedule) -> list[Finding]:
    if schedule.last_job is None:
        return []
    why = broker.why(schedule.last_job)
    if why.state is None:
        return []
    colour = _GREEN if why.state is State.SUCCEEDED else _YELLOW
    if why.state in ENDED - {State.SUCCEEDED}:
        colour = _RED
    return [Finding("last job", colour, why.sentence, f"penstock show {schedule.last_job}")]


_KINDS: dict[str, Callable[[Broker, str], list[Finding]]] = {
    "queue": _why_queue,
    "task": _why_task,
    "worker": _why_worker,
    "flow": _why_flow,
    "schedule": _why_schedule,
}
