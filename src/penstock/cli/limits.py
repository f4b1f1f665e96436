"""Limits: how many jobs run at a time, and how many start in a time, over all workers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.options import Json, Reason, Store, person, with_options
from penstock.cli.rules import Ends, Queue, TaskName


@with_options
def limit(
    queue: Queue = None,
    *,
    task: TaskName = None,
    running: Annotated[
        int | None, typer.Option("--running", help="At most so many at a time.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", help="At most so many starts: 10/s, 100/min, 5/30s.")
    ] = None,
    per_key: Annotated[bool, typer.Option("--per-key", help="Each key on its own.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Take the limit back.")] = False,
    reason: Reason = "",
    ends: Ends,
    store: Store,
    json: Json = False,
) -> None:
    """Limit a queue or a task, over all workers together; what runs goes on to its end.

    Example: penstock limit mail --running 5 --rate 100/min
    """
    from penstock.cli import output
    from penstock.cli.store_choice import acting
    from penstock.operate import to_json
    from penstock.operate.rule_fields import rule_of, rule_off
    from penstock.operate.sentences import limited, was_not_set
    from penstock.rules.rule import RuleKind

    fields: dict[str, Any] = {
        "queue": queue,
        "task": task,
        "running": running,
        "rate": rate,
        "per_key": per_key,
        "reason": reason,
    }
    with acting(store, person()) as (broker, actions):
        now = broker.clock.now()
        if off:
            rule = rule_off(RuleKind.LIMIT, **fields)
            cleared = actions.clear_rule(rule)
            if json:
                output.put_json({"kind": "limit", "queue": queue, "task": task, "cleared": cleared})
            elif cleared:
                output.say(f"{rule.target} has no limit any more")
            else:
                output.say(was_not_set(rule))
            return
        rule = actions.set_rule(rule_of(RuleKind.LIMIT, now, **ends._asdict(), **fields))
        counts = [count for count in broker.count() if rule.holds(count.queue, count.task, now)]
    runs, waits = sum(count.running for count in counts), sum(count.limited for count in counts)
    if json:
        output.put_json({**to_json.rule_json(rule), "jobs": waits, "now_running": runs})
        return
    output.say(limited(rule, runs, waits))
    output.aside(f"{output.program()} limit {' '.join(rule.words)} --off takes it back")
