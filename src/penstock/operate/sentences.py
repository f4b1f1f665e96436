"""What an operation did, in one sentence: for the terminal, and for a page that has to say it."""

from __future__ import annotations

from collections.abc import Collection

from penstock.operate.bulk_actions import BulkVerb
from penstock.operate.why import moment
from penstock.rules.rule import Rule, RuleKind

_DONE = {RuleKind.PAUSE: "paused", RuleKind.BLOCK: "blocked", RuleKind.ORDER: "ordered"}
NEVER_SET = "somebody has taken it back, or it was never set"


def jobs_text(number: int) -> str:
    return f"{number:,} {'job' if number == 1 else 'jobs'}"


def _jobs_are(number: int) -> str:
    return f"{jobs_text(number)} {'is' if number == 1 else 'are'}"


# Rules


def held_back(rule: Rule, jobs: int) -> str:
    """A pause or a block was set."""
    ends = "" if rule.until is None else f" until {moment(rule.until)}"
    done = f"{rule.target} is {_DONE[rule.kind]}{ends}"
    return f"{done}: {_jobs_are(jobs)} held back, what runs goes on to its end"


def limited(rule: Rule, running: int, waiting: int) -> str:
    """A limit was set."""
    return f"{rule.target} is limited to {rule.bound}: {running:,} run now, {waiting:,} wait for it"


def let_go(rule: Rule, jobs: int) -> str:
    """A pause or a block was taken back, and nothing else holds its jobs."""
    return f"{rule.target} runs again: {_jobs_are(jobs)} let go"


def was_not_set(rule: Rule) -> str:
    """There was nothing to take back."""
    if rule.kind is RuleKind.LIMIT:
        return f"{rule.target} had no such limit: {NEVER_SET}"
    return f"{rule.target} was not {_DONE[rule.kind]}: {NEVER_SET}"


def still_held(over: Rule) -> str:
    """Another rule holds the same jobs back."""
    whose = f"a {over.kind} of {over.author or 'somebody'}"
    reason = f" ({over.reason})" if over.reason else ""
    return f"{over.target} is still held back by {whose}{reason}"


# Jobs and flows


def acted(verb: BulkVerb, job_id: str, *, running: bool) -> str:
    """One job, by its id."""
    told = running and verb.name == "cancel"
    return f"{job_id} {'is running and was told to stop' if told else verb.done}"


def left_as_it_is(job_id: str, why: str) -> str:
    return f"{job_id} left as it is. {why}"


def acted_on_flow(verb: BulkVerb, flow: str, done: Collection[str]) -> str:
    """A whole flow."""
    if not done:
        return f"flow {flow}: none of its jobs stands so that it could be {verb.done}"
    told = ", or told to stop" if verb.name == "cancel" else ""
    return f"flow {flow}: {jobs_text(len(done))} {verb.done}{told}"


def no_such_flow(id: str) -> str:
    return (
        f"{id[:60]} is no flow that is stored here, and no job of one: it was never enqueued, or "
        "it ended and was not kept."
    )


# Signals and schedules


def signalled(name: str, ended: Collection[str]) -> str:
    if not ended:
        return (
            f"nobody waits for the signal {name!r}, and it is not kept for whoever comes later; "
            "`penstock find task:penstock:wait_for state:waiting` shows who waits"
        )
    return f"{jobs_text(len(ended))} waited for the signal {name!r}, and ended with that:"


SCHEDULES = {
    "pause": "schedule {name} is paused: its slots are skipped",
    "resume": "schedule {name} goes on with its next slot",
    "run": "enqueued {job}; the schedule goes on as it is",
    "remove": "schedule {name} is removed; one that a worker has in its code comes back",
}
