"""Why a job is in its state: facts in, one sentence out.

The causes are tested in the order of a claim: the answer is the first one that keeps the job from
running.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.broker.views import Why, WorkerRow
from penstock.enqueue.secrets import gone_secrets
from penstock.flows.flow import WAIT_TASK, NodeRow
from penstock.flows.signals import TAG
from penstock.job import Job, State
from penstock.operate.rule_fields import undo_command
from penstock.operate.time_text import duration_text, time_text
from penstock.rules.limits import Limits
from penstock.rules.rule import Rule, RuleKind, rule_over_job
from penstock.run.error_text import headline


class FullLimit(NamedTuple):
    """The limit that keeps a job from starting, and its present usage."""

    rule: Rule
    key: str | None
    running: Mapping[str, int]  # running jobs by worker
    free_in: float | None  # seconds until more may start; None: when one of them ends


def full_limit(
    limits: Limits, job: Job[Any], holders: Callable[[Rule, str | None], Mapping[str, int]]
) -> FullLimit | None:
    """The limit that keeps this job from starting now, if one does."""
    if job.state is not State.READY:
        return None
    for key in (None,) if job.key is None else (None, job.key):
        room = limits.room(job.lane, 1, key)
        if room.jobs <= 0 and room.rule is not None:
            return FullLimit(room.rule, key, holders(room.rule, key), room.free_in)
    return None


def under_limit(found: Why, full: FullLimit, now: float) -> Why:
    """The same, of a job that this limit keeps from starting."""
    cause, sentence = _limited(full, now)
    return msgspec.structs.replace(found, cause=cause, sentence=sentence)


def explain(  # noqa: PLR0917  nine facts, in the order in which a store gathers them
    job_id: str,
    job: Job[Any] | None,
    now: float,
    rules: Sequence[Rule],
    workers: Sequence[WorkerRow],
    ahead: int | None,
    needs: Sequence[NodeRow] = (),
    full: FullLimit | None = None,
    behind: Job[Any] | None = None,
) -> Why:
    """The first cause that applies; `ahead` is the number of due jobs of its lane before it.

    `needs` are the nodes that a job of a flow still waits for; `behind` is the job of the same key
    that comes first.
    """
    if job is None:
        return Why(
            job_id,
            None,
            "unknown",
            f"No job {job_id} is in this store: it was never enqueued here, or it ended and is not "
            "kept.",
        )
    if job.state is State.WAITING and job.task == WAIT_TASK:
        return Why(job_id, job.state, "signal", _awaiting(job, now))
    if job.state is State.WAITING:
        return Why(job_id, job.state, "needs", _waiting(needs))
    cause, sentence = _cause(job, now, rules, workers, ahead, full, behind)
    return Why(job_id, job.state, cause, sentence, ahead if job.state is State.READY else None)


def on_no_shard(found: Why, job: Job[Any], shard: str, workers: Sequence[WorkerRow]) -> Why:
    """The same, of a job on a shard from which none of the workers that could run it claims."""
    takers = [row for row in workers if _takes(row, job)]
    if not takers or any(row.shards is None or shard in row.shards for row in takers):
        return found
    claimed = {name for row in takers for name in row.shards or ()}
    sentence = (
        f"It is on the shard {shard!r}, and no live worker takes jobs from there: those that could "
        f"run it have URLs with ?claim={','.join(sorted(claimed))}. Start one without ?claim, or "
        f"with ?claim={shard}."
    )
    return msgspec.structs.replace(found, cause="no_shard", sentence=sentence)


def _takes(row: WorkerRow, job: Job[Any]) -> bool:
    own = row.alive and row.queues != () and row.app == job.app
    return own and job.task in row.tasks and _not_taken_by(job, [row]) is None


def _cause(  # noqa: PLR0917  as explain
    job: Job[Any],
    now: float,
    rules: Sequence[Rule],
    workers: Sequence[WorkerRow],
    ahead: int | None,
    full: FullLimit | None,
    behind: Job[Any] | None,
) -> tuple[str, str]:
    match job.state:
        case State.SUCCEEDED | State.FAILED | State.CANCELLED:
            return "ended", _ended(job, now)
        case State.RUNNING:
            return "running", _running(job, now, workers)
        case _:
            return (
                _held_back(job, now, rules)
                or _not_taken(job, workers)
                or (behind and _ordered(behind, now))
                or (full and _limited(full, now))
                or _next(ahead)
            )


def _ended(job: Job[Any], now: float) -> str:
    at = "" if job.ended_at is None else f" at {time_text(job.ended_at)}"
    if job.state is State.SUCCEEDED:
        return f"It succeeded{at}."
    again = f"`penstock retry {job.id}` runs it again."
    if gone := gone_secrets(job.body, now):
        options = " ".join(f"--secret {name}" for name in gone)
        again = (
            "Its secrets are not stored any more: "
            f"`penstock retry {job.id} {options}` asks for them and runs it again."
        )
    if job.state is State.CANCELLED:
        if job.reason == "expired" and job.task == WAIT_TASK:
            return (
                f"It was cancelled{at}: the signal {_signal(job)!r} did not come in time. "
                f"`penstock retry {job.id}` makes it wait again, without a time limit."
            )
        if job.reason == "expired":
            return f"It was cancelled{at}: it expired before a worker started it. {again}"
        if job.reason == "needs":
            if not gone:
                again = (
                    f"`penstock flow {job.id}` names it. When it is retried, this one waits again."
                )
            return f"It was cancelled{at}: a job that it needs did not succeed. {again}"
        return f"It was cancelled{at} ({job.reason or 'cancelled'}). {again}"
    error = headline(job.error)
    if job.reason == "unreadable":
        again = (
            f"`penstock copy {job.id} --args JSON` enqueues it with arguments that fit; "
            f"{again[:-1]}, once a worker has code that takes these."
        )
    return f"It failed{at} ({job.reason or 'error'}){error and ': ' + error}. {again}"


def _waiting(needs: Sequence[NodeRow], most: int = 5) -> str:
    if not needs:
        return "It waits for the jobs it needs, and becomes ready when they have ended."
    parts = [_need(need) for need in needs[:most]]
    if more := len(needs) - most:
        parts += [f"and {more} more"] if more > 0 else []
    sentence = f"It waits for the jobs it needs: {'; '.join(parts)}."
    if stuck := [need for need in needs if not need.jobs_left]:
        sentence += (
            f" `penstock retry` of what did not succeed there ({stuck[0].id}) lets it go on."
        )
    elif any(need.task != WAIT_TASK for need in needs[:most]):
        sentence += f" `penstock why flow:{needs[0].flow}` says what keeps them."
    return sentence


def _awaiting(job: Job[Any], now: float) -> str:
    name = _signal(job)
    ends = f"`penstock signal {shlex.quote(name)}` ends it"
    if job.expires_at is None:
        return f"It waits for the signal {name!r}: {ends}."
    if job.expires_at <= now:
        return (
            f"The signal {name!r} did not come by {time_text(job.expires_at)}: the next worker "
            "that looks at the job cancels it."
        )
    return f"It waits for the signal {name!r} until {time_text(job.expires_at)}: {ends}."


def _signal(job: Job[Any]) -> str:
    return job.tags.get(TAG, "")


def _need(need: NodeRow) -> str:
    if need.jobs_left and need.task == WAIT_TASK:
        return f"a signal, see `penstock why {need.id}`"
    if need.task == WAIT_TASK:
        return f"a signal that did not come, see `penstock why {need.id}`"
    if need.jobs_left:
        return f"{_jobs(need.jobs_left)} of {need.jobs} of the task {need.task!r} left"
    return f"{_jobs(need.bad)} of the task {need.task!r} did not succeed"


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def _running(job: Job[Any], now: float, workers: Sequence[WorkerRow]) -> str:
    since = ""
    if job.claimed_at is not None:
        since = f" since {time_text(job.claimed_at)} ({duration_text(now - job.claimed_at)})"
    row = next((row for row in workers if row.id == job.worker), None)
    if row is None:
        return f"It runs on worker {job.worker}{since}, attempt {job.attempt}."
    where = f" ({row.host}, pid {row.pid})" if row.host else ""
    if row.alive:
        return f"It runs on worker {row.id}{where}{since}, attempt {job.attempt}."
    return (
        f"It was claimed by worker {row.id}{where}{since}, whose lease has expired: the job "
        "becomes ready again when the worker is recovered."
    )


def _held_back(job: Job[Any], now: float, rules: Sequence[Rule]) -> tuple[str, str] | None:
    if job.expires_at is not None and job.expires_at <= now:
        return "time", (
            f"It expired at {time_text(job.expires_at)} before a worker started it: the next "
            "worker that looks at it cancels it."
        )
    rule = rule_over_job(rules, job, now)
    if job.run_at is not None and job.run_at > now:
        due = f"due in {duration_text(job.run_at - now)} ({time_text(job.run_at)})"
        error = headline(job.error)
        if job.reason == "later":
            cause = f" ({error})" if error and not job.failures else ""
            sentence = f"It asked to run later{cause}: {due}."
        elif job.reason == "store":
            sentence = (
                f"Its store was unreachable while it ran ({error}), and it runs again: {due}."
            )
        elif job.failures and error:
            times = "once" if job.failures == 1 else f"{job.failures} times"
            sentence = f"It failed {times} ({error}) and waits for its retry: {due}."
        else:
            sentence = f"It waits for its time: {due}."
        return "time", sentence if rule is None else f"{sentence} {_ruled(rule)}"
    if rule is None:
        return None
    return "blocked" if rule.kind is RuleKind.BLOCK else "paused", _ruled(rule)


def _ruled(rule: Rule) -> str:
    block = rule.kind is RuleKind.BLOCK
    target = rule.target[0].upper() + rule.target[1:]
    author = f" by {rule.author}" if rule.author else ""
    until = "" if rule.until is None else f" until {time_text(rule.until)}"
    reason = f": {rule.reason!r}" if rule.reason else ""
    held = "blocked" if block else "paused"
    if rule.freezes:
        target, held = "The store", "frozen"
    return (
        f"{target} is {held}{author} since {time_text(rule.created_at)}"
        f"{until}{reason}. `{undo_command(rule)}` lets it run."
    )


def _ordered(behind: Job[Any], now: float) -> tuple[str, str]:
    first = f"job {behind.id} of the same key {behind.key!r}"
    if behind.state is State.FAILED:
        return "stuck", (
            f"It waits behind {first}, which failed ({behind.reason or 'error'}): "
            f"`penstock retry {behind.id}` runs that job again, `penstock delete {behind.id}` "
            "gives it up."
        )
    if behind.state is State.RUNNING:
        since = "" if behind.claimed_at is None else f" since {time_text(behind.claimed_at)}"
        return "order", f"It waits behind {first}, which runs{since} on worker {behind.worker}."
    if behind.run_at is not None and behind.run_at > now:
        again = "is tried again" if behind.failures else "is due"
        return "order", f"It waits behind {first}, which {again} at {time_text(behind.run_at)}."
    return "order", f"It waits behind {first}, which is ready and comes first."


def _limited(full: FullLimit, now: float) -> tuple[str, str]:
    rule = full.rule
    target = rule.target[0].upper() + rule.target[1:]
    author = f" by {rule.author}" if rule.author else ""
    until = "" if rule.until is None else f" until {time_text(rule.until)}"
    reason = f" ({rule.reason!r})" if rule.reason else ""
    key = "" if full.key is None else f" for the key {full.key!r}"
    number = sum(full.running.values())
    most = sorted(full.running.items(), key=lambda worker: (-worker[1], worker[0]))
    places = ", ".join(f"{jobs:,} on {worker}" for worker, jobs in most[:3])
    more = f" and {len(most) - 3} more workers" if len(most) > 3 else ""
    runs = f"{number:,} {'runs' if number == 1 else 'run'} now{key}"
    runs += f" ({places}{more})" if most else ""
    if full.free_in is None:
        free = "the next may start when one of them has ended"
    else:
        free = f"the next may start in {full.free_in:.1f} s ({time_text(now + full.free_in)})"
    return "limit", (
        f"{target} is limited to {rule.bound}{author} since {time_text(rule.created_at)}{until}"
        f"{reason}: {runs}, {free}."
    )


def _not_taken(job: Job[Any], workers: Sequence[WorkerRow]) -> tuple[str, str] | None:
    workers = [row for row in workers if row.queues != ()]  # without queues: a detached process
    alive = [row for row in workers if row.alive]
    if not alive:
        return "no_worker", _no_worker(workers)
    own = [row for row in alive if row.app == job.app]
    if not own:
        return "no_app", _no_app(job.app, {row.app for row in alive})
    return _not_taken_by(job, own)


def _not_taken_by(job: Job[Any], alive: Sequence[WorkerRow]) -> tuple[str, str] | None:
    """Why none of the live workers of its app takes it."""
    known = {name for row in alive for name in row.tasks}
    alive = [row for row in alive if job.task in row.tasks]
    if not alive:
        return "no_task", _no_task(job.task, known)
    served = {name for row in alive for name in row.queues or ()}
    alive = [row for row in alive if row.queues is None or job.queue in row.queues]
    if not alive:
        return "no_queue", (
            f"No live worker serves the queue {job.queue!r}; those that know the task "
            f"{job.task!r} serve {_listed(served)}."
        )
    highest = max(row.tasks[job.task] for row in alive)
    alive = [row for row in alive if job.version <= row.tasks[job.task]]
    if not alive:
        return "no_version", (
            f"It needs version {job.version} of the task {job.task!r}; live workers have version "
            f"{highest} at most. It runs when a newer worker is started."
        )
    offered = {tag for row in alive for tag in row.tags}
    if not any(row.tags.issuperset(job.runs_on) for row in alive):
        return "no_tags", (
            f"It runs only on a worker with the tags {_listed(job.runs_on)}; no live worker that "
            f"could run it has them all (they have {_listed(offered)})."
        )
    return None


def _no_worker(workers: Sequence[WorkerRow]) -> str:
    if not workers:
        return "No worker is alive. `penstock worker` starts one."
    last = max(workers, key=lambda row: (row.claimed_at or row.started_at, row.id))
    where = f" ({last.host}, pid {last.pid})" if last.host else ""
    return (
        f"No worker is alive: the lease of the last one, {last.id}{where}, has expired. "
        "`penstock worker` starts one."
    )


def _no_app(app: str, served: set[str]) -> str:
    others = " and ".join(_app(name) for name in sorted(served))
    return (
        f"It is a job of {_app(app)}, and no live worker belongs to that; live workers belong to "
        f"{others}. It runs when a worker of its own program is started."
    )


def _app(name: str) -> str:
    return f"the app {name!r}" if name else "a program without a name"


def _no_task(task: str, known: set[str]) -> str:
    near = difflib.get_close_matches(task, sorted(known), n=1)
    if near:
        similar = f"workers know {near[0]!r} (did you mean that?)"
    else:
        similar = f"workers know {_listed(known)}"
    return (
        f"No live worker knows the task {task!r}; {similar}. It runs when a worker that knows it "
        "is started."
    )


def _next(ahead: int | None) -> tuple[str, str]:
    if ahead is None:
        return "next", "It is ready, and workers that can run it are alive."
    if ahead == 0:
        return "next", "It is ready and next: no job of its lane is ahead of it."
    one = ahead == 1
    return "next", (
        f"It is ready: {ahead} {'job' if one else 'jobs'} of its lane {'is' if one else 'are'} "
        "ahead of it."
    )


def _listed(names: Sequence[str] | set[str] | frozenset[str], most: int = 5) -> str:
    if not names:
        return "none"
    shown = sorted(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(repr(name) for name in shown[:most]) + more
