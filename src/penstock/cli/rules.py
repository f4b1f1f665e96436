"""pause, resume, block, unblock, limit, order: set rules and remove them.

A rule is one write, however many jobs it holds back; a block outlasts a resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.operate.refusals import Forbidden

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.operate.actions import Actions
    from penstock.operate.roles import Person
    from penstock.rules.rule import Rule

Queue = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="A queue's name.", show_default=False)
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="Only this task; in QUEUE, or in any queue.", show_default=False),
]
Version = Annotated[int | None, typer.Option("--version", help="Only jobs of this task version.")]
Tag = Annotated[
    str | None, typer.Option("--tag", metavar="NAME=VALUE", help="Only jobs with this tag.")
]
Key = Annotated[str | None, typer.Option("--key", help="Only jobs with this key.")]
All = Annotated[bool, typer.Option("--all", help="Everything in the store.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the number of jobs, and change nothing.")
]
Until = Annotated[
    str | None, typer.Option("--until", help="End at this time, for example 2026-11-15T08:00Z.")
]
For = Annotated[str | None, typer.Option("--for", help="End after this time, for example 2h.")]
Admin = Annotated[bool, typer.Option("--admin", help="Confirm that you are an admin.")]


class Target(NamedTuple):
    """The jobs of a rule, and its reason."""

    queue: Queue = None
    task: TaskName = None
    version: Version = None
    tag: Tag = None
    key: Key = None
    all_: All = False
    reason: Reason = ""


class Ends(NamedTuple):
    """When a rule ends by itself."""

    until: Until = None
    for_: For = None


@with_options
def pause(
    target: Target, *, ends: Ends, dry_run: DryRun = False, store: Store, json: Json = False
) -> None:
    """Pause a queue, task, version, tag or key: its jobs wait. Running jobs finish.

    Example: penstock pause mail --reason "provider is down" --for 2h
    """
    _set("pause", person(), target, ends, store, dry_run=dry_run, json=json)


@with_options
def resume(target: Target, *, dry_run: DryRun = False, store: Store, json: Json = False) -> None:
    """Remove a pause. Give the same queue, task, tag or key it was set with.

    Example: penstock resume mail
    """
    _clear("pause", person(), target, store, dry_run=dry_run, json=json)


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
    """Pause as an admin: `resume` does not remove it, only `unblock` does.

    Example: penstock block imports --admin --reason "disk nearly full"
    """
    me = _admin("block", admin=admin, store=store)
    _set("block", me, target, ends, store, dry_run=dry_run, json=json)


@with_options
def unblock(
    target: Target,
    *,
    dry_run: DryRun = False,
    admin: Admin = False,
    store: Store,
    json: Json = False,
) -> None:
    """Remove a block. A pause of the same jobs stays.

    Example: penstock unblock imports --admin
    """
    me = _admin("unblock", admin=admin, store=store)
    _clear("block", me, target, store, dry_run=dry_run, json=json)


@with_options
def limit(
    queue: Queue = None,
    *,
    task: TaskName = None,
    running: Annotated[
        int | None,
        typer.Option("--running", help="Most jobs running at the same time.", show_default=False),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="Most starts per time: 10/s, 100/min, 5/30s.")
    ] = None,
    per_key: Annotated[bool, typer.Option("--per-key", help="Count each key by itself.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Remove the limit.")] = False,
    reason: Reason = "",
    ends: Ends,
    store: Store,
    json: Json = False,
) -> None:
    """Limit a queue or a task, over all workers together. Running jobs finish.

    Example: penstock limit mail --running 5 --rate 100/min
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate import to_json
    from penstock.operate.rule_fields import parse_rule, parse_rule_to_clear, undo_command
    from penstock.operate.sentences import limited_text, rule_not_set_text
    from penstock.operate.unknown_names import unknown_names_text
    from penstock.rules.rule import RuleKind

    fields: dict[str, Any] = {
        "queue": queue,
        "task": task,
        "running": running,
        "rate": rate,
        "per_key": per_key,
        "reason": reason,
    }
    with open_actions(store, person()) as (broker, actions):
        if off:
            rule = parse_rule_to_clear(RuleKind.LIMIT, **fields)
            cleared = actions.clear_rule(rule)
            if json:
                output.print_json(
                    {"kind": "limit", "queue": queue, "task": task, "cleared": cleared}
                )
            else:
                done = f"the limit of {rule.target} is removed"
                output.print_text(done if cleared else rule_not_set_text(rule))
            return
        now = actions.now
        rule = parse_rule(RuleKind.LIMIT, now, **ends._asdict(), **fields)
        unknown = unknown_names_text(broker, rule)  # a rule that is set makes its queue known
        rule = actions.set_rule(rule)
        counts = [count for count in broker.count() if rule.holds(count.queue, count.task, now)]
    _warn_of(unknown)
    runs, waits = sum(count.running for count in counts), sum(count.limited for count in counts)
    if json:
        output.print_json({**to_json.rule_json(rule), "jobs": waits, "now_running": runs})
        return
    output.print_text(limited_text(rule, runs, waits))
    output.print_note(f"to remove it: {undo_command(rule, output.program())}")


@with_options
def order(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="A queue's name.")],
    policy: Annotated[
        str | None,
        typer.Argument(metavar="POLICY", help="wait, skip, batch or fair.", show_default=False),
    ] = None,
    *,
    off: Annotated[bool, typer.Option("--off", help="Remove the order.")] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Show, set or (with --off) remove the order by key of a queue.

    wait, skip: one job of a key at a time, in order; after a failed job, wait holds the key back
    and skip goes on. batch: several of a key at a time, in order. fair: keys take turns.

    Example: penstock order orders wait
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate.rule_fields import RuleFields, parse_rule, parse_rule_to_clear
    from penstock.rules.key_order import policies, policy_text
    from penstock.rules.rule import Rule, RuleKind

    fields: RuleFields = {"queue": queue, "policy": policy, "reason": reason}
    with open_actions(store, person()) as (broker, actions):
        changed = False
        if off:
            changed = actions.clear_rule(parse_rule_to_clear(RuleKind.ORDER, **fields))
        elif policy is not None:
            actions.set_rule(parse_rule(RuleKind.ORDER, actions.now, **fields))
            changed = True
        current = policies(broker.records(Rule)).get(queue)
    if json:
        output.print_json({"kind": "order", "queue": queue, "policy": current, "changed": changed})
        return
    output.print_text(f"queue {queue} is {policy_text(current)}{' now' if changed else ''}")
    if current is not None:
        output.print_note(f"to remove it: {output.program()} order {queue} --off")


def _admin(operation: str, *, admin: bool, store: Store) -> Person:
    """The caller as an admin; refused, before the store is opened, without --admin."""
    from penstock.brokers.schemes import has_roles
    from penstock.cli.store_choice import store_url
    from penstock.operate.actions import check_role

    me = person(admin=admin)
    try:
        check_role(operation, me)
    except Forbidden as error:
        meaning = (
            "The database then requires its owner or a member of penstock_admin "
            "(`penstock migrate roles`)"
            if has_roles(store_url(*store).url)
            else "This prevents mistakes only: who can open the store can do anything to it"
        )
        raise Forbidden(f"{error}: add --admin if you have it. {meaning}") from None
    return me


def _set(
    kind: str, me: Person, target: Target, ends: Ends, store: Store, *, dry_run: bool, json: bool
) -> None:
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate import to_json
    from penstock.operate.rule_fields import parse_rule, undo_command
    from penstock.operate.sentences import held_back_text, jobs_text
    from penstock.operate.unknown_names import unknown_names_text
    from penstock.rules.rule import RuleKind

    with open_actions(store, me) as (broker, actions):
        rule = parse_rule(RuleKind(kind), actions.now, **target._asdict(), **ends._asdict())
        unknown = unknown_names_text(broker, rule)  # a rule that is set makes its queue known
        if not dry_run:
            rule = actions.set_rule(rule)
        held = actions.matching(rule).jobs
    _warn_of(unknown)
    if json:
        extra = {"dry_run": True} if dry_run else {}
        output.print_json({**to_json.rule_json(rule), "jobs": held, **extra})
    elif dry_run:
        output.print_text(f"this would hold back {jobs_text(held)} now; nothing was changed")
    else:
        output.print_text(held_back_text(rule, held))
        output.print_note(f"to remove it: {undo_command(rule, output.program())}")


def _warn_of(unknown: str) -> None:
    """A rule for a queue that nobody knows is set all the same: it may come before its jobs."""
    from penstock.cli import output

    if unknown:
        output.print_note(f"{unknown}; the rule applies as soon as there is one", "yellow")


def _clear(
    kind: str, me: Person, target: Target, store: Store, *, dry_run: bool, json: bool
) -> None:
    from penstock.cli.store_choice import open_actions
    from penstock.operate.rule_fields import parse_rule_to_clear
    from penstock.rules.rule import RuleKind

    with open_actions(store, me) as (broker, actions):
        rule = parse_rule_to_clear(RuleKind(kind), **target._asdict())
        _clear_rule(broker, actions, rule, dry_run=dry_run, json=json)


def _clear_rule(broker: Broker, actions: Actions, rule: Rule, *, dry_run: bool, json: bool) -> None:
    from penstock.cli import output
    from penstock.operate import to_json
    from penstock.operate.jobs_under_rule import still_over
    from penstock.operate.rule_fields import undo_command
    from penstock.operate.sentences import (
        jobs_text,
        let_go_text,
        rule_not_set_text,
        still_held_text,
    )
    from penstock.rules.rule import Rule

    rules = broker.records(Rule)
    exists = any(other.identity == rule.identity for other in rules)
    over = still_over(rules, rule)
    held = actions.matching(rule).jobs if exists and over is None else 0
    if dry_run:
        if json:
            output.print_json({**to_json.rule_json(rule), "jobs": held, "dry_run": True})
        else:
            output.print_text(f"this would release {jobs_text(held)} now; nothing was changed")
        return
    cleared = actions.clear_rule(rule)
    if json:
        output.print_json(
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
        output.print_text(rule_not_set_text(rule))
    elif over is None:
        output.print_text(let_go_text(rule, held))
    if over is not None:
        output.print_text(f"{still_held_text(over)}: {undo_command(over)}")
