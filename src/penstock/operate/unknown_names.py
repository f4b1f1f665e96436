"""Whether a rule or an option names a queue or a task that nobody knows: probably a typing error.

Either may come before the first job, so it is set all the same, and the caller is told.
"""

from __future__ import annotations

from difflib import get_close_matches

from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions
from penstock.operate.why_named import queues_known, tasks_known
from penstock.rules.rule import Rule, RuleKind


def unknown_queue_text(broker: Broker, name: str) -> str:
    """The same about a queue whose options are set; options that it has make it known."""
    if any(record.queue == name for record in broker.records(QueueOptions)):
        return ""
    return unknown_names_text(broker, Rule(RuleKind.PAUSE, queue=name))


def unknown_names_text(broker: Broker, rule: Rule) -> str:
    """A sentence about the queue or task that is not known, with similar names; else nothing.

    Ask before the rule is set: a rule makes its queue known.
    """
    counts, workers = broker.count(), broker.workers()
    for kind, name, known in (
        ("queue", rule.queue, queues_known(broker, counts, workers)),
        ("task", rule.task, tasks_known(broker, counts, workers)),
    ):
        if name is None or name in known:
            continue
        near = get_close_matches(name, sorted(known), n=2)
        similar = f"; similar: {' or '.join(near)}" if near else ""
        return f"no job, worker or other rule knows a {kind} {name!r}{similar}"
    return ""
