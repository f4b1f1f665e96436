"""Rules: pause and resume for users, block and unblock for operators.

A rule is one write, however many jobs it holds back; block wins over resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AppTarget, Json, Profile, Reason, Url, author, moment_of, span_of
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.rules.rule import Rule

Queue = Annotated[str | None, typer.Argument(metavar="QUEUE", help="A queue.", show_default=False)]
TaskName = Annotated[
    str | None, typer.Option("--task", help="A task, of any queue or of QUEUE.", show_default=False)
]
Version = Annotated[
    int | None, typer.Option("--version", help="Jobs made for this version.", show_default=False)
]
Tag = Annotated[str | None, typer.Option("--tag", metavar="NAME=VALUE", help="Jobs with this tag.")]
Key = Annotated[str | None, typer.Option("--key", help="Jobs with this key.", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say how many jobs, and change nothing.")]
Until = Annotated[
    str | None, typer.Option("--until", help="Until then, for example 2026-11-15T08:00Z.")
]
For = Annotated[str | None, typer.Option("--for", help="For so long, for example 2h.")]
Admin = Annotated[bool, typer.Option("--admin", help="Yes, I am an operator.")]


def pause(
    queue: Queue = None,
    *,
    task: TaskName = None,
    version: Version = None,
    tag: Tag = None,
    key: Key = None,
    reason: Reason = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Hold back jobs of a queue, task, version, tag or key; what runs goes on to its end.

    Example: penstock pause mail --reason "provider is down" --for 2h
    """
    from penstock.cli.store_choice import opened
    from penstock.rules.rule import Rule, RuleKind

    with opened(url, profile, app) as broker:
        rule = Rule(
            RuleKind.PAUSE,
            queue,
            task,
            author(),
            reason,
            until=ends_at(until, for_, broker.clock.now()),
            version=version,
            tag=_tag(tag),
            key=key,
        )
        _set(broker, rule, dry_run=dry_run, json=json)


def resume(
    queue: Queue = None,
    *,
    task: TaskName = None,
    version: Version = None,
    tag: Tag = None,
    key: Key = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Remove a pause. Give the same queue, task, tag or key it was set with.

    Example: penstock resume mail
    """
    from penstock.cli.store_choice import opened
    from penstock.rules.rule import Rule, RuleKind

    with opened(url, profile, app) as broker:
        rule = Rule(
            RuleKind.PAUSE,
            queue,
            task,
            reason=reason,
            version=version,
            tag=_tag(tag),
            key=key,
        )
        _clear(broker, rule, dry_run=dry_run, json=json)


def block(
    queue: Queue = None,
    *,
    task: TaskName = None,
    version: Version = None,
    tag: Tag = None,
    key: Key = None,
    reason: Reason = "",
    until: Until = None,
    for_: For = None,
    dry_run: DryRun = False,
    admin: Admin = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Hold back jobs as an operator: resume does not lift it.

    Example: penstock block imports --admin --reason "disk nearly full"
    """
    from penstock.cli.store_choice import opened
    from penstock.rules.rule import Rule, RuleKind

    _operators_only("block", admin=admin, where=(url, profile, app))
    with opened(url, profile, app) as broker:
        rule = Rule(
            RuleKind.BLOCK,
            queue,
            task,
            author(),
            reason,
            until=ends_at(until, for_, broker.clock.now()),
            version=version,
            tag=_tag(tag),
            key=key,
        )
        _set(broker, rule, dry_run=dry_run, json=json)


def unblock(
    queue: Queue = None,
    *,
    task: TaskName = None,
    version: Version = None,
    tag: Tag = None,
    key: Key = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    admin: Admin = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Lift a block; a pause beside it stays.

    Example: penstock unblock imports --admin
    """
    from penstock.cli.store_choice import opened
    from penstock.rules.rule import Rule, RuleKind

    _operators_only("unblock", admin=admin, where=(url, profile, app))
    with opened(url, profile, app) as broker:
        rule = Rule(
            RuleKind.BLOCK,
            queue,
            task,
            reason=reason,
            version=version,
            tag=_tag(tag),
            key=key,
        )
        _clear(broker, rule, dry_run=dry_run, json=json)


def _operators_only(
    verb: str, *, admin: bool, where: tuple[str | None, str | None, str | None]
) -> None:
    from penstock.brokers.schemes import has_roles
    from penstock.cli.store_choice import store_url

    if not admin:
        holds = (
            "The database then asks for its owner or a member of penstock_admin "
            "(`penstock migrate roles`)"
            if has_roles(store_url(*where).url)
            else "It is a guard-rail, not a lock: whoever can open the store can do anything to it"
        )
        raise Refused(f"{verb} is for operators: say --admin if you are one. {holds}")


def ends_at(until: str | None, for_: str | None, now: float) -> float | None:
    """When a rule ends by itself, as --until or --for say."""
    from penstock.operate.why import ago

    if until is not None and for_ is not None:
        raise Refused("--until and --for both say when it ends: give one of them")
    if for_ is not None:
        return now + span_of(for_, "--for")
    if until is None:
        return None
    at = moment_of(until, "--until").timestamp()
    if at <= now:
        raise Refused(f"--until {until}: that was {ago(at, now)}")
    return at


def _tag(said: str | None) -> tuple[str, str] | None:
    if said is None:
        return None
    name, equals, value = said.partition("=")
    if not name or not equals:
        raise Refused(f"--tag {said}: write NAME=VALUE")
    return name, value


def _set(broker: Broker, rule: Rule, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.why import moment
    from penstock.rules.held import fitting

    block = rule.kind == "block"
    _needs_target(rule.kind, rule)
    if dry_run:
        held = fitting(broker, rule).jobs
        if json:
            output.put_json({**to_json.rule_json(rule), "jobs": held, "dry_run": True})
        else:
            output.say(f"this would hold back {_number(held)} now; nothing was changed")
        return
    rule = broker.put(rule)
    held = fitting(broker, rule).jobs
    if json:
        output.put_json({**to_json.rule_json(rule), "jobs": held})
        return
    ends = "" if rule.until is None else f" until {moment(rule.until)}"
    undo = "unblock --admin" if block else "resume"
    done = "blocked" if block else "paused"
    output.say(
        f"{rule.target} is {done}{ends}: {_jobs(held)} held back, what runs goes on to its end"
    )
    output.aside(f"{output.program()} {undo} {' '.join(rule.words)} lets it run again")


def _clear(broker: Broker, rule: Rule, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.rules.held import fitting, still_over
    from penstock.rules.rule import RuleKind

    undo = "unblock" if rule.kind is RuleKind.BLOCK else "resume"
    _needs_target(undo, rule)
    there = any(each.place == rule.place for each in broker.records(Rule))
    over = still_over(broker.records(Rule), rule)
    held = fitting(broker, rule).jobs if there and over is None else 0
    if dry_run:
        if json:
            output.put_json({**to_json.rule_json(rule), "jobs": held, "dry_run": True})
        else:
            output.say(f"this would let go {_number(held)} now; nothing was changed")
        return
    cleared = broker.clear(Rule, rule.id, author(), rule.reason)
    if json:
        output.put_json(
            {
                "kind": rule.kind,
                "queue": rule.queue,
                "task": rule.task,
                "cleared": cleared,
                "held_by": None if over is None else to_json.rule_json(over),
            }
        )
        return
    if not cleared:
        output.say(f"{rule.target} was not {'blocked' if undo == 'unblock' else 'paused'}")
    elif over is None:
        output.say(f"{rule.target} runs again: {_jobs(held)} let go")
    if over is not None:
        verb = "unblock" if over.kind is RuleKind.BLOCK else "resume"
        admin = " --admin" if over.kind is RuleKind.BLOCK else ""
        said = f" ({over.reason})" if over.reason else ""
        output.say(
            f"{over.target} is still held back by a {over.kind} of {over.author or 'somebody'}"
            f"{said}: penstock {verb} {' '.join(over.words)}{admin}"
        )


def _needs_target(verb: str, rule: Rule) -> None:
    if rule.target == "everything":
        raise Refused(f"{verb} what? Name a queue, or --task, --version, --tag or --key")


def _number(jobs: int) -> str:
    return f"{jobs:,} {'job' if jobs == 1 else 'jobs'}"


def _jobs(number: int) -> str:
    return f"{number:,} {'job is' if number == 1 else 'jobs are'}"
