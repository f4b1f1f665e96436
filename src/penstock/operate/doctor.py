"""The doctor: findings about a store, its workers and jobs, each with a colour and a remedy.

Red: jobs are stuck or lost, or will be. Yellow: worth knowing. The command line and the dashboard
show the same. The doctor changes nothing and creates no store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from penstock.broker.environment import Environment
from penstock.broker.lake_mark import Mark
from penstock.errors import PenstockError
from penstock.operate.rule_fields import undo_command
from penstock.operate.sentences import jobs_text
from penstock.operate.task_places import REMEDY, defined_twice
from penstock.operate.time_text import duration_text
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.broker.views import Count, WorkerRow
    from penstock.brokers.condition import StoreCondition

_CLOCK_SECONDS = 60
_CLOCK_HINT_SECONDS = 1


class Colour(StrEnum):
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was examined."""

    name: str
    colour: Colour
    says: str
    remedy: str = ""


def promise_of(url: str) -> str:
    """What an accepted job survives in this store, as a sentence without its subject."""
    from penstock.brokers import store_condition

    return store_condition(url).promise


def examine(url: str, known: Mapping[str, int] | None = None) -> list[Finding]:
    """Examine a store and its jobs; `known` are the tasks of the loaded app."""
    from penstock.brokers import open_broker, store_condition

    condition = store_condition(url, thorough=True)
    findings = _store(condition)
    if not condition.exists or condition.too_new:
        return findings
    try:
        broker = open_broker(url, create=False)
    except PenstockError as error:
        return [*findings, Finding("store", Colour.RED, str(error), "see above")]
    try:
        return [*findings, *examine_jobs(broker, known)]
    finally:
        broker.close()


def examine_jobs(broker: Broker, known: Mapping[str, int] | None = None) -> list[Finding]:
    """Examine the jobs, workers, rules, schedules and lakes of an open store."""
    findings: list[Finding] = []
    try:
        findings.append(_clock(broker))
        findings += _environment(broker)
        counts, workers = broker.count(), broker.workers()
        findings += _workers(workers, counts, broker.clock.now())
        findings += task_findings(workers, counts, known)
        findings += [
            Finding("tasks", Colour.YELLOW, str(each), REMEDY) for each in defined_twice(workers)
        ]
        findings += rule_findings(broker.records(Rule), counts, broker.clock.now())
        findings += _schedules(broker)
        findings += _lakes(broker)
        findings.append(_failed(counts))
    except PenstockError as error:
        findings.append(Finding("store", Colour.RED, str(error), "see above"))
    return findings


def detached_here() -> Finding:
    """What a detached process survives if a worker starts it in this environment."""
    from penstock.worker.detached.systemd_unit import start_method

    method = start_method()
    colour = Colour.YELLOW if method.remedy else Colour.GREEN
    return Finding("detached", colour, method.survives, method.remedy)


def _store(condition: StoreCondition) -> list[Finding]:
    if condition.unseen is not None:
        says = f"{condition.where} cannot be read: {condition.unseen.says}"
        return [Finding("store", Colour.RED, says, condition.unseen.remedy)]
    if not condition.exists:
        return [
            Finding(
                "store",
                Colour.RED,
                f"there is no store at {condition.where}",
                "a worker or the first enqueue creates it; or name another one with --url",
            )
        ]
    findings = [
        Finding("store", Colour.GREEN, f"{condition.kind} at {condition.where}"),
        Finding("promise", Colour.GREEN, condition.promise),
    ]
    if condition.schema is not None and condition.newest is not None:
        findings.append(_schema(condition, condition.schema, condition.newest))
    if condition.settings:
        settings = ", ".join(f"{name} {value}" for name, value in condition.settings.items())
        findings.append(Finding("settings", Colour.GREEN, settings))
    findings += [
        Finding(
            trouble.name,
            Colour.RED if trouble.grave else Colour.YELLOW,
            trouble.says,
            trouble.remedy,
        )
        for trouble in condition.trouble
    ]
    findings += [Finding(fact.name, Colour.GREEN, fact.says, fact.hint) for fact in condition.facts]
    return findings


def _schema(condition: StoreCondition, schema: int, newest: int) -> Finding:
    if condition.too_new:
        says = f"{schema}, but this Penstock only knows up to {newest}"
        return Finding("schema", Colour.RED, says, "upgrade Penstock here")
    if schema > newest:
        says = f"{schema}, newer than this Penstock, but compatible"
        return Finding("schema", Colour.YELLOW, says, "upgrade Penstock here")
    if schema < newest:
        says = f"{schema}; this Penstock migrates it to {newest} when it opens the store"
        return Finding("schema", Colour.YELLOW, says, "penstock migrate up")
    return Finding("schema", Colour.GREEN, f"{schema}, the newest this Penstock knows")


def _clock(broker: Broker) -> Finding:
    here, store = time.time(), broker.clock.now()
    ahead = abs(here - store)
    rows = broker.history(after=None, limit=1)
    if rows and rows[0].at - store > _CLOCK_SECONDS:
        back = duration_text(rows[0].at - store)
        says = f"the newest history row is {back} ahead of the clock: the clock was set back"
        return Finding("clock", Colour.RED, says, "set this machine's clock right (NTP)")
    if ahead > _CLOCK_SECONDS:
        says = f"differs by {duration_text(ahead)} from the store's"
        return Finding("clock", Colour.RED, says, "set this machine's clock right (NTP)")
    if ahead > _CLOCK_HINT_SECONDS:
        says = f"differs by {duration_text(ahead)} from the store's, which decides"
        return Finding("clock", Colour.YELLOW, says, "set this machine's clock right (NTP)")
    return Finding("clock", Colour.GREEN, f"within {max(ahead, 0.001):.3f} s of the store's")


def _environment(broker: Broker) -> list[Finding]:
    findings: list[Finding] = []
    for record in broker.records(Environment):
        name, now = record.environment, broker.traits.places()
        author = f", by {record.author}" if record.author else ""
        says = f"{name}{author}; workers of another one do not start"
        findings.append(Finding("environment", Colour.GREEN, says))
        for shard, ids in now.items():
            if shard in record.places and record.places[shard] not in ids:
                of = f"shard {shard} of the store" if shard else "the store"
                says = (
                    f"{of} was on another server, or in another file, when it became that of "
                    f"{name}: it was copied, restored or moved since"
                )
                findings.append(
                    Finding(
                        "environment", Colour.YELLOW, says, "penstock adopt, where it is to run"
                    )
                )
    return findings


def _workers(workers: Sequence[WorkerRow], counts: Sequence[Count], now: float) -> list[Finding]:
    alive = [row for row in workers if row.alive and row.queues != ()]
    detached = [row for row in workers if row.state == "detached"]
    lapsed = [row for row in workers if not row.alive]
    ready = sum(count.ready for count in counts)
    findings: list[Finding] = []
    if alive:
        running = sum(row.running for row in alive)
        says = f"{len(alive)} alive, {jobs_text(running)} running"
        findings.append(Finding("workers", Colour.GREEN, says))
    else:
        colour = Colour.RED if ready else Colour.YELLOW
        waits = f"ready to run: {ready:,}" if ready else "nothing is ready to run"
        findings.append(
            Finding("workers", colour, f"no worker is alive; {waits}", "penstock worker MODULE:APP")
        )
    if detached:
        says = f"{len(detached):,} running, each in a process of its own"
        findings.append(Finding("detached", Colour.GREEN, says))
    for row in lapsed:
        where = f"{row.host}, pid {row.pid}"
        since = (
            f"started {duration_text(now - row.started_at)} ago" if row.started_at else "long gone"
        )
        findings.append(
            Finding(
                "workers",
                Colour.YELLOW,
                f"{row.id} ({where}, {since}) has lapsed and holds {jobs_text(row.running)}",
                "a live worker makes them ready again within one lease",
            )
        )
    return findings


def task_findings(
    workers: Sequence[WorkerRow], counts: Sequence[Count], own: Mapping[str, int] | None
) -> list[Finding]:
    """Queued tasks that no live worker knows."""
    alive = [row for row in workers if row.alive]
    known = {name for row in alive for name in row.tasks} | set(own or {})
    taken = {(row.app, name) for row in alive for name in row.tasks}
    if not known:
        return []
    findings: list[Finding] = []
    for count in counts:
        stuck = count.ready + count.scheduled + count.paused
        if not stuck or (count.app, count.task) in taken or count.task in (own or {}):
            continue
        app = f" of the app {count.app}" if count.app else ""
        near = get_close_matches(count.task, sorted(known), n=2)
        hint = f"; similar: {', '.join(near)}" if near else ""
        findings.append(
            Finding(
                "tasks",
                Colour.RED,
                f"{jobs_text(stuck)} of {count.task} {'waits' if stuck == 1 else 'wait'} in queue "
                f"{count.queue}, and no live worker"
                f"{app} knows it{hint}",
                "start a worker that has the task, or keep its old name with aliases=(...)",
            )
        )
    return findings or [Finding("tasks", Colour.GREEN, "every queued task is known to a worker")]


def rule_findings(rules: Sequence[Rule], counts: Sequence[Count], now: float) -> list[Finding]:
    """What each rule holds back, and the command that removes it."""
    findings: list[Finding] = []
    for rule in rules:
        if rule.kind == "order":
            continue  # an order delays jobs but stops none, and programs set it themselves
        limit = rule.kind == "limit"
        held = sum(
            count.limited if limit else count.paused
            for count in counts
            if rule.holds(count.queue, count.task, now)
        )
        findings.append(
            Finding(
                "rules",
                Colour.GREEN if limit else Colour.YELLOW,
                f"{rule.target} has a {rule.kind}{f' of {rule.bound}' if limit else ''}, set by "
                f"{rule.author or 'somebody'}{': ' + rule.reason if rule.reason else ''}; "
                f"{jobs_text(held)} {'is' if held == 1 else 'are'} held back",
                undo_command(rule),
            )
        )
    return findings


def _schedules(broker: Broker) -> list[Finding]:
    from penstock.schedules.status import AHEAD, LATE, LEFT, state_of

    remedies = {
        LATE: "penstock worker MODULE:APP",
        LEFT: "start a worker that has its code, or penstock schedules {} --remove",
        AHEAD: "penstock schedules {} --remove, and put it again",
        "paused": "penstock schedules {} --resume",
    }
    now, kept = broker.clock.now(), broker.records(Schedule)
    states = [(schedule.name, state_of(schedule, now)) for schedule in kept]
    findings = [
        Finding(
            "schedules", Colour.YELLOW, f"{name}: {state}", remedies.get(state, "").format(name)
        )
        for name, state in states
        if state not in ("on", "over")
    ]
    if not findings and kept:
        findings.append(Finding("schedules", Colour.GREEN, f"{len(kept)}, none of them late"))
    return findings


def _lakes(broker: Broker) -> list[Finding]:
    from penstock.broker.lake_mark import STILL_SECONDS, gap_text, place_of

    now, marks = broker.clock.now(), broker.records(Mark)
    findings: list[Finding] = []
    for mark in marks:
        lake, since = place_of(mark), now - mark.told_at
        choice = (
            f"penstock pipeline run --lake {lake}; if the lake is no longer used,"
            f" penstock pipeline forget --lake {mark.lake}"
        )
        if mark.gap is not None:
            says = f"{lake} misses {gap_text(mark.gap)}: pruned before the lake had it"
            findings.append(Finding("lakes", Colour.RED, says, choice))
        elif since > STILL_SECONDS:
            says = (
                f"{lake} has not been updated for {duration_text(since)}; the store keeps history"
                f" after position {mark.position} for it, {duration_text(mark.hold)} longer than"
                " the retention"
            )
            findings.append(Finding("lakes", Colour.YELLOW, says, choice))
    if marks and not findings:
        last = duration_text(now - min(mark.told_at for mark in marks))
        findings.append(
            Finding("lakes", Colour.GREEN, f"{len(marks)}; each was updated within the last {last}")
        )
    return findings


def _failed(counts: Sequence[Count]) -> Finding:
    failed = sum(count.failed for count in counts)
    if not failed:
        return Finding("jobs", Colour.GREEN, "none has failed")
    says = f"{failed:,} failed jobs are kept"
    return Finding("jobs", Colour.YELLOW, says, "penstock find state:failed, then penstock retry")
