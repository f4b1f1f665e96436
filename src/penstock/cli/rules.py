"""Rules: pause and resume for users, block and unblock for operators.

A rule is one write, however many jobs it holds back; block wins over resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AppTarget, Json, Profile, Reason, Url, author, moment_of, span_of
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.rule import Rule, RuleKind

Queue = Annotated[str | None, typer.Argument(metavar="QUEUE", help="A queue.", show_default=False)]
TaskName = Annotated[
    str | None, typer.Option("--task", help="A task, of any queue or of QUEUE.", show_default=False)
]
Until = Annotated[
    str | None, typer.Option("--until", help="Until then, for example 2026-11-15T08:00Z.")
]
For = Annotated[str | None, typer.Option("--for", help="For so long, for example 2h.")]
Admin = Annotated[bool, typer.Option("--admin", help="Yes, I am an operator.")]


def pause(
    queue: Queue = None,
    *,
    task: TaskName = None,
    reason: Reason = "",
    until: Until = None,
    for_: For = None,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Hold back a queue or a task; what runs goes on to its end.

    Example: penstock pause mail --reason "provider is down" --for 2h
    """
    from penstock.cli.place import opened
    from penstock.rule import RuleKind

    with opened(url, profile, app) as broker:
        ends_at = _ends_at(until, for_, broker.clock.now())
        _set(broker, _rule(RuleKind.PAUSE, queue, task, reason, ends_at), json=json)


def resume(
    queue: Queue = None,
    *,
    task: TaskName = None,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Let a paused queue or task run again.

    Example: penstock resume mail
    """
    from penstock.cli.place import opened
    from penstock.rule import RuleKind

    with opened(url, profile, app) as broker:
        _clear(broker, RuleKind.PAUSE, queue, task, json=json)


def block(
    queue: Queue = None,
    *,
    task: TaskName = None,
    reason: Reason = "",
    until: Until = None,
    for_: For = None,
    admin: Admin = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Hold back a queue or a task as an operator: resume does not lift it.

    Example: penstock block imports --admin --reason "disk nearly full"
    """
    from penstock.cli.place import opened
    from penstock.rule import RuleKind

    _operators_only("block", admin=admin, where=(url, profile, app))
    with opened(url, profile, app) as broker:
        ends_at = _ends_at(until, for_, broker.clock.now())
        _set(broker, _rule(RuleKind.BLOCK, queue, task, reason, ends_at), json=json)


def unblock(
    queue: Queue = None,
    *,
    task: TaskName = None,
    admin: Admin = False,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Lift a block; a pause beside it stays.

    Example: penstock unblock imports --admin
    """
    from penstock.cli.place import opened
    from penstock.rule import RuleKind

    _operators_only("unblock", admin=admin, where=(url, profile, app))
    with opened(url, profile, app) as broker:
        _clear(broker, RuleKind.BLOCK, queue, task, json=json)


def _operators_only(
    verb: str, *, admin: bool, where: tuple[str | None, str | None, str | None]
) -> None:
    from penstock.cli.place import store_url

    if not admin:
        holds = (
            "The database then asks for its owner or a member of penstock_admin "
            "(`penstock migrate roles`)"
            if store_url(*where).url.startswith(("postgresql:", "postgres:"))
            else "It is a guard-rail, not a lock: whoever can open the store can do anything to it"
        )
        raise Refused(f"{verb} is for operators: say --admin if you are one. {holds}")


def _ends_at(until: str | None, for_: str | None, now: float) -> float | None:
    from penstock.cli.show import ago

    if until is not None and for_ is not None:
        raise Refused("--until and --for both say when it ends: give one of them")
    if for_ is not None:
        return now + span_of(for_, "--for")
    if until is None:
        return None
    ends_at = moment_of(until, "--until").timestamp()
    if ends_at <= now:
        raise Refused(f"--until {until}: that was {ago(ends_at, now)}")
    return ends_at


def _rule(
    kind: RuleKind, queue: str | None, task: str | None, reason: str, ends_at: float | None
) -> Rule:
    from penstock.rule import Rule

    _needs_target(kind, queue, task)
    return Rule(kind, queue, task, author=author(), reason=reason, until=ends_at)


def _set(broker: Broker, rule: Rule, *, json: bool) -> None:
    from penstock.cli import show
    from penstock.why import moment

    rule = broker.set_rule(rule)
    held = _held_back(broker, rule)
    if json:
        show.put_json({**show.rule_json(rule), "jobs": held})
        return
    ends = "" if rule.until is None else f" until {moment(rule.until)}"
    undo = "unblock --admin" if rule.kind == "block" else "resume"
    done = "blocked" if rule.kind == "block" else "paused"
    show.say(
        f"{rule.target} is {done}{ends}: {_jobs(held)} held back, what runs goes on to its end"
    )
    show.aside(f"{show.program()} {undo} {_words(rule)} lets it run again")


def _clear(
    broker: Broker, kind: RuleKind, queue: str | None, task: str | None, *, json: bool
) -> None:
    from penstock.cli import show
    from penstock.rule import Rule, RuleKind, rule_over

    undo = "unblock" if kind is RuleKind.BLOCK else "resume"
    _needs_target(undo, queue, task)
    rule = Rule(kind, queue, task)
    queue, task = rule.queue, rule.task
    held = _held_back(broker, rule)
    cleared = broker.clear_rule(kind, queue, task, author())
    now = broker.clock.now()
    left = [each for each in broker.rules() if each.holds(queue or "", task or "", now)]
    over = rule_over(left, queue or "", task or "", now)
    if json:
        show.put_json(
            {
                "kind": kind,
                "queue": queue,
                "task": task,
                "cleared": cleared,
                "held_by": None if over is None else show.rule_json(over),
            }
        )
        return
    if not cleared:
        show.say(f"{rule.target} was not {'blocked' if undo == 'unblock' else 'paused'}")
    elif over is None:
        show.say(f"{rule.target} runs again: {_jobs(held)} let go")
    if over is not None:
        verb = "unblock" if over.kind is RuleKind.BLOCK else "resume"
        admin = " --admin" if over.kind is RuleKind.BLOCK else ""
        said = f" ({over.reason})" if over.reason else ""
        show.say(
            f"{over.target} is still held back by a {over.kind} of {over.author or 'somebody'}"
            f"{said}: penstock {verb} {_words(over)}{admin}"
        )


def _needs_target(verb: str, queue: str | None, task: str | None) -> None:
    if queue is None and task is None:
        raise Refused(f"{verb} what? Name a queue, or --task NAME, or both")


def _held_back(broker: Broker, rule: Rule) -> int:
    now = broker.clock.now()
    return sum(count.paused for count in broker.count() if rule.holds(count.queue, count.task, now))


def _jobs(number: int) -> str:
    return f"{number:,} {'job is' if number == 1 else 'jobs are'}"


def _words(rule: Rule) -> str:
    words = [rule.queue] if rule.queue else []
    return " ".join(words + (["--task", rule.task] if rule.task else []))
