"""Rules: pause and resume for users, block and unblock for operators.

A rule is one write, however many jobs it holds back; block wins over resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.operate.refusals import Forbidden

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.operate.actions import Actions
    from penstock.operate.roles import Person
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


class Target(NamedTuple):
    """What a rule is about, and why it is."""

    queue: Queue = None
    task: TaskName = None
    version: Version = None
    tag: Tag = None
    key: Key = None
    reason: Reason = ""


class Ends(NamedTuple):
    """When a rule ends by itself."""

    until: Until = None
    for_: For = None


@with_options
def pause(
    target: Target,
    *,
    ends: Ends,
    dry_run: DryRun = False,
    store: Store,
    json: Json = False,
) -> None:
    """Hold back jobs of a queue, task, version, tag or key; what runs goes on to its end.

    Example: penstock pause mail --reason "provider is down" --for 2h
    """
    from penstock.cli.store_choice import acting
    from penstock.operate.rule_fields import rule_of
    from penstock.rules.rule import RuleKind

    with acting(store, person()) as (_, actions):
        rule = rule_of(RuleKind.PAUSE, actions.now, **target._asdict(), **ends._asdict())
        _set(actions, rule, dry_run=dry_run, json=json)


@with_options
def resume(
    target: Target,
    *,
    dry_run: DryRun = False,
    store: Store,
    json: Json = False,
) -> None:
    """Remove a pause. Give the same queue, task, tag or key it was set with.

    Example: penstock resume mail
    """
    from penstock.cli.store_choice import acting
    from penstock.operate.rule_fields import rule_off
    from penstock.rules.rule import RuleKind

    with acting(store, person()) as (broker, actions):
        rule = rule_off(RuleKind.PAUSE, **target._asdict())
        _clear(broker, actions, rule, dry_run=dry_run, json=json)


@with_options
def block(
    target: Target,
    *,
    ends: Ends,
    dry_run: DryRun = False,
    admin: Admin = False,
    store: Store,
    json: Json = False,
) -> None:
    """Hold back jobs as an operator: resume does not lift it.

    Example: penstock block imports --admin --reason "disk nearly full"
    """
    from penstock.cli.store_choice import acting
    from penstock.operate.rule_fields import rule_of
    from penstock.rules.rule import RuleKind

    me = _operator("block", admin=admin, store=store)
    with acting(store, me) as (_, actions):
        rule = rule_of(RuleKind.BLOCK, actions.now, **target._asdict(), **ends._asdict())
        _set(actions, rule, dry_run=dry_run, json=json)


@with_options
def unblock(
    target: Target,
    *,
    dry_run: DryRun = False,
    admin: Admin = False,
    store: Store,
    json: Json = False,
) -> None:
    """Lift a block; a pause beside it stays.

    Example: penstock unblock imports --admin
    """
    from penstock.cli.store_choice import acting
    from penstock.operate.rule_fields import rule_off
    from penstock.rules.rule import RuleKind

    me = _operator("unblock", admin=admin, store=store)
    with acting(store, me) as (broker, actions):
        rule = rule_off(RuleKind.BLOCK, **target._asdict())
        _clear(broker, actions, rule, dry_run=dry_run, json=json)


def _operator(operation: str, *, admin: bool, store: Store) -> Person:
    """Who is asking, if they say that they may; before the store is opened."""
    from penstock.brokers.schemes import has_roles
    from penstock.cli.store_choice import store_url
    from penstock.operate.actions import check_role

    me = person(admin=admin)
    try:
        check_role(operation, me)
    except Forbidden as error:
        holds = (
            "The database then asks for its owner or a member of penstock_admin "
            "(`penstock migrate roles`)"
            if has_roles(store_url(*store).url)
            else "It is a guard-rail, not a lock: whoever can open the store can do anything to it"
        )
        raise Forbidden(f"{error}: say --admin if you have it. {holds}") from None
    return me


def _set(actions: Actions, rule: Rule, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.sentences import held_back, jobs_text

    if not dry_run:
        rule = actions.set_rule(rule)
    held = actions.fitting(rule).jobs
    if json:
        tried = {"dry_run": True} if dry_run else {}
        output.put_json({**to_json.rule_json(rule), "jobs": held, **tried})
    elif dry_run:
        output.say(f"this would hold back {jobs_text(held)} now; nothing was changed")
    else:
        output.say(held_back(rule, held))
        output.aside(f"{output.program()} {_undo(rule)} lets it run again")


def _clear(broker: Broker, actions: Actions, rule: Rule, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.sentences import jobs_text, let_go, still_held, was_not_set
    from penstock.rules.held import still_over
    from penstock.rules.rule import Rule

    rules = broker.records(Rule)
    there = any(each.identity == rule.identity for each in rules)
    over = still_over(rules, rule)
    held = actions.fitting(rule).jobs if there and over is None else 0
    if dry_run:
        if json:
            output.put_json({**to_json.rule_json(rule), "jobs": held, "dry_run": True})
        else:
            output.say(f"this would let go {jobs_text(held)} now; nothing was changed")
        return
    cleared = actions.clear_rule(rule)
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
        output.say(was_not_set(rule))
    elif over is None:
        output.say(let_go(rule, held))
    if over is not None:
        output.say(f"{still_held(over)}: penstock {_undo(over)}")


def _undo(rule: Rule) -> str:
    """What takes a pause or a block back, as one types it."""
    from penstock.operate.rule_fields import OFF
    from penstock.rules.rule import RuleKind

    admin = ["--admin"] if rule.kind is RuleKind.BLOCK else []
    return " ".join([OFF[rule.kind], *rule.words, *admin])
