"""Order: how a queue is handed out by key, for all programs that use the store.

Programs declare it themselves (`app.queue`); this is to look at it, and to change one's mind.
"""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.rules.rule import Rule


@with_options
def order(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="A queue.")],
    policy: Annotated[
        str | None,
        typer.Argument(metavar="POLICY", help="wait, skip or fair.", show_default=False),
    ] = None,
    *,
    off: Annotated[bool, typer.Option("--off", help="Take the order back.")] = False,
    reason: Reason = "",
    store: Store,
    json: Json = False,
) -> None:
    """Show how a queue is handed out by key, set it, or take it back with --off.

    Example: penstock order orders wait
    """
    from penstock.cli import output
    from penstock.cli.store_choice import acting
    from penstock.operate.rule_fields import RuleFields, rule_of, rule_off
    from penstock.rules.key_order import policies, policy_text
    from penstock.rules.rule import RuleKind

    fields: RuleFields = {"queue": queue, "policy": policy, "reason": reason}
    with acting(store, person()) as (broker, actions):
        changed = False
        if off:
            changed = actions.clear_rule(rule_off(RuleKind.ORDER, **fields))
        elif policy is not None:
            actions.set_rule(rule_of(RuleKind.ORDER, broker.clock.now(), **fields))
            changed = True
        standing = policies(broker.records(Rule)).get(queue)
    if json:
        output.put_json({"kind": "order", "queue": queue, "policy": standing, "changed": changed})
        return
    output.say(f"queue {queue} is {policy_text(standing)}{' now' if changed else ''}")
    if standing is not None:
        output.aside(f"{output.program()} order {queue} --off takes it back")
