"""rules, freeze: every rule of a store with its id; a switch that keeps all its workers idle."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.cli.rules import Ends


@with_options
def rules(*, store: Store, json: Json = False) -> None:
    """List the rules in force, with ids, authors and reasons.

    Example: penstock rules --json
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_store
    from penstock.operate import to_json
    from penstock.operate.rule_fields import undo_command
    from penstock.operate.time_text import relative_time, time_text
    from penstock.rules.rule import Rule

    with open_store(*store) as broker:
        now, kept = broker.clock.now(), broker.records(Rule)
    if json:
        output.print_json_lines(to_json.rule_json(rule) for rule in kept)
        return
    if not kept:
        output.print_note("there are no rules: nothing is paused, blocked, limited or ordered")
        return
    for rule in kept:
        ends = "" if rule.until is None else f", until {time_text(rule.until)}"
        bound = rule.bound or rule.policy or ""
        what = f"{rule.kind} of {rule.target}{bound and ': '}{bound}"
        by = f"{rule.author or 'a program'} {relative_time(rule.created_at, now)}{ends}"
        output.print_text(f"{rule.id}  {what}  (by {by})")
        if rule.reason:
            output.print_text(f"              {rule.reason}")
        output.print_note(f"              to remove it: {undo_command(rule, output.program())}")


@with_options
def freeze(
    *,
    off: Annotated[bool, typer.Option("--off", help="Let the store run again.")] = False,
    reason: Reason = "",
    ends: Ends,
    store: Store,
    json: Json = False,
) -> None:
    """Keep all workers of a store idle: no job starts, no schedule makes one. Running jobs finish.

    Example: penstock freeze --reason "copy of production"
    """
    from penstock.cli import output
    from penstock.cli.store_choice import open_actions
    from penstock.operate import to_json
    from penstock.operate.rule_fields import parse_rule, parse_rule_to_clear
    from penstock.operate.sentences import jobs_text
    from penstock.rules.rule import RuleKind

    with open_actions(store, person(admin=True)) as (_, actions):
        if off:
            cleared = actions.clear_rule(
                parse_rule_to_clear(RuleKind.BLOCK, all_=True, reason=reason)
            )
            if json:
                output.print_json({"frozen": False, "cleared": cleared})
            else:
                output.print_text("the store runs again" if cleared else "the store was not frozen")
            return
        given = ends._asdict()
        rule = parse_rule(RuleKind.BLOCK, actions.now, all_=True, reason=reason, **given)
        rule = actions.set_rule(rule)
        held = actions.matching(rule).jobs
    if json:
        output.print_json({"frozen": True, "jobs": held, **to_json.rule_json(rule)})
        return
    output.print_text(f"the store is frozen: {jobs_text(held)} held back; running jobs finish")
    output.print_note(f"to let it run again: {output.program()} freeze --off")
