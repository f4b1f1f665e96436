"""Limits: how many jobs run at a time, and how many start in a time, over all workers."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AppTarget, Json, Profile, Reason, Url, author
from penstock.cli.rules import For, Queue, TaskName, Until, ends_at
from penstock.errors import Refused


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
    until: Until = None,
    for_: For = None,
    url: Url = None,
    profile: Profile = None,
    app: AppTarget = None,
    json: Json = False,
) -> None:
    """Limit a queue or a task, over all workers together; what runs goes on to its end.

    Example: penstock limit mail --running 5 --rate 100/min
    """
    from penstock.cli import output
    from penstock.cli.store_choice import opened
    from penstock.operate import to_json
    from penstock.rules.rule import Rule, RuleKind, parse_rate, rule_id

    if queue is None and task is None:
        raise Refused("limit what? Name a queue, or --task NAME, or both")
    if off and (running is not None or rate is not None):
        raise Refused("--off takes the limit back: leave out --running and --rate")
    with opened(url, profile, app) as broker:
        if off:
            place = rule_id(RuleKind.LIMIT, queue, task, per_key=per_key)
            cleared = broker.clear(Rule, place, author(), reason)
            if json:
                output.put_json({"kind": "limit", "queue": queue, "task": task, "cleared": cleared})
            else:
                target = Rule(RuleKind.PAUSE, queue, task).target
                output.say(
                    f"{target} {'has no limit any more' if cleared else 'had no such limit'}"
                )
            return
        rule = broker.put(
            Rule(
                RuleKind.LIMIT,
                queue,
                task,
                author(),
                reason,
                until=ends_at(until, for_, broker.clock.now()),
                running=running,
                rate=None if rate is None else parse_rate(rate),
                per_key=per_key,
            )
        )
        counts = [
            count
            for count in broker.count()
            if rule.holds(count.queue, count.task, broker.clock.now())
        ]
    runs, waits = sum(count.running for count in counts), sum(count.limited for count in counts)
    if json:
        output.put_json({**to_json.rule_json(rule), "jobs": waits, "now_running": runs})
        return
    output.say(f"{rule.target} is limited to {rule.bound}: {runs:,} run now, {waits:,} wait for it")
    output.aside(f"{output.program()} limit {' '.join(rule.words)} --off takes it back")
