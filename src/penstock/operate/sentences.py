"""What an operation did, in one sentence; the same on the terminal and on the pages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.operate.bulk_actions import BulkVerb
from penstock.operate.time_text import time_text
from penstock.rules.rule import Rule, RuleKind

_DONE = {RuleKind.PAUSE: "paused", RuleKind.BLOCK: "blocked", RuleKind.ORDER: "ordered"}
NEVER_SET = "nothing was changed"


def jobs_text(number: int) -> str:
    return f"{number:,} {'job' if number == 1 else 'jobs'}"


def _jobs_are(number: int) -> str:
    return f"{jobs_text(number)} {'is' if number == 1 else 'are'}"


# Rules


def held_back_text(rule: Rule, jobs: int) -> str:
    """A pause or a block was set."""
    ends = "" if rule.until is None else f" until {time_text(rule.until)}"
    done = f"{rule.target} is {_DONE[rule.kind]}{ends}"
    return f"{done}: {_jobs_are(jobs)} held back; running jobs finish"


def limited_text(rule: Rule, running: int, waiting: int) -> str:
    """A limit was set."""
    usage = f"{running:,} running now, {waiting:,} waiting for it"
    return f"{rule.target} is limited to {rule.bound}: {usage}"


def let_go_text(rule: Rule, jobs: int) -> str:
    """A pause or a block was removed, and no other rule holds its jobs back."""
    return f"{rule.target} runs again: {_jobs_are(jobs)} released"


def rule_not_set_text(rule: Rule) -> str:
    """There was no such rule to remove."""
    if rule.kind is RuleKind.LIMIT:
        return f"{rule.target} had no such limit: {NEVER_SET}"
    return f"{rule.target} was not {_DONE[rule.kind]}: {NEVER_SET}"


def still_held_text(over: Rule) -> str:
    """Another rule holds the same jobs back."""
    held_by = f"a {over.kind} set by {over.author or 'somebody'}"
    reason = f" ({over.reason})" if over.reason else ""
    return f"{over.target} is still held back by {held_by}{reason}"


# Jobs and flows


def job_acted_text(verb: BulkVerb, job_id: str, *, running: bool) -> str:
    """One job, by its id."""
    stopping = running and verb.name == "cancel"
    return f"{job_id} {'is running and was asked to stop' if stopping else verb.done}"


def left_unchanged_text(job_id: str, why: str) -> str:
    return f"{job_id} was not changed. {why}"


def secrets_gone_text(job_id: str, names: Sequence[str]) -> str:
    """A retry left this job as it is: secrets_gone."""
    options = " ".join(f"--secret {name}" for name in names)
    return (
        f"{job_id} was not changed (secrets_gone). Its secrets are not stored any more. "
        f"`penstock retry {job_id} {options}` asks for them and runs it again."
    )


def secrets_gone_count(number: int) -> str:
    """How many jobs a retry left as they are, after what it did; nothing if none."""
    if not number:
        return ""
    left, their = ("it is", "its") if number == 1 else ("they are", "their")
    return f"; {jobs_text(number)} left as {left}: {their} secrets are not stored any more"


def flow_acted_text(verb: BulkVerb, flow: str, done: Collection[str]) -> str:
    """A whole flow."""
    if not done:
        return f"flow {flow}: no job is in a state in which it can be {verb.done}"
    stopping = ", or asked to stop" if verb.name == "cancel" else ""
    return f"flow {flow}: {jobs_text(len(done))} {verb.done}{stopping}"


def no_such_flow_text(id: str) -> str:
    return (
        f"{id[:60]} is not a flow in this store, nor a job of one: it was never enqueued here, or "
        "it ended and is not kept."
    )


# Signals and schedules


def signal_text(name: str, ended: Collection[str]) -> str:
    if not ended:
        return (
            f"no job waits for the signal {name!r}, and signals are not stored for later; "
            "`penstock find task:penstock:wait_for state:waiting` lists the jobs that wait"
        )
    return f"{jobs_text(len(ended))} waited for the signal {name!r} and ended with its value:"


def published_text(topic: str, jobs: int, *, dry_run: bool) -> str:
    if not jobs:
        return f"nobody subscribed to {topic}: `penstock topics` lists the subscriptions"
    return f"{topic}: {jobs_text(jobs)} {'would be stored' if dry_run else 'stored'}"


def unsubscribed_text(name: str, *, removed: bool) -> str:
    if not removed:
        return f"there is no subscription {name}: `penstock topics` lists them"
    return f"subscription {name} is removed; a program that has it in its code stores it again"


SCHEDULE_TEXTS = {
    "pause": "schedule {name} is paused: its slots are skipped",
    "resume": "schedule {name} continues with its next slot",
    "run": "enqueued {job}; the schedule itself is unchanged",
    "remove": "schedule {name} is removed; a worker that has it in its code adds it again",
}
MISSED_TEXTS = {
    "one": "only the last one runs",
    "skip": "none of them runs",
    "all": "each of them runs",
}
OVERLAP_TEXTS = {
    "allow": "the next job may run beside the previous one",
    "skip": "a slot is skipped while the previous job has not ended",
    "cancel": "the previous job is cancelled when the next one is due",
}
