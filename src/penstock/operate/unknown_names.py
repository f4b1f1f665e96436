"""Whether a rule names a queue or a task that nobody has heard of: probably a typing error.

A rule may come before the first job, so it is set all the same, and the caller is told.
"""

from __future__ import annotations

from difflib import get_close_matches

from penstock.broker.protocol import Broker
from penstock.operate.why_named import queues_known, tasks_known
from penstock.rules.rule import Rule


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
