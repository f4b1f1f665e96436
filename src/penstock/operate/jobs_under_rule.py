"""How many jobs a rule holds back, and which other rule would still hold them.

Counts come from the tallies, so that a queue of a million is as quick as one job. Only a rule about
a version, a tag or a key is counted job by job, up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind


class Fitting(NamedTuple):
    """How many jobs that are due a rule is about; `more`: counting was given up there."""

    jobs: int
    more: bool = False


def fitting(broker: Broker, rule: Rule, most: int | None = None) -> Fitting:
    """How many jobs that are due fit the rule; of those counted one by one, look at `most`."""
    now = broker.clock.now()
    if not rule.by_job and rule.version is None:
        return Fitting(
            sum(
                count.ready + count.paused + count.limited
                for count in broker.count()
                if rule.holds(count.queue, count.task, now)
            )
        )
    wanted = Filter(
        task=() if rule.task is None else (rule.task,),
        queue=() if rule.queue is None else (rule.queue,),
        state=(State.READY,),
        tags={} if rule.tag is None else {rule.tag[0]: (rule.tag[1],)},
    )
    number, looked_at, after = 0, 0, None
    while True:
        page = broker.find(wanted, after, 1000)
        number += sum(
            rule.fits(job) and (job.run_at is None or job.run_at <= now) for job in page.jobs
        )
        looked_at += len(page.jobs)
        after = page.after
        if after is None:
            return Fitting(number)
        if most is not None and looked_at >= most:
            return Fitting(number, more=True)


def still_over(rules: Iterable[Rule], rule: Rule) -> Rule | None:
    """Another rule that keeps back all that this one does: a block if there is one."""
    left = [
        each
        for each in rules
        if each.kind in {RuleKind.BLOCK, RuleKind.PAUSE}
        and each.identity != rule.identity
        and each.queue in {None, rule.queue}
        and each.task in {None, rule.task}
        and each.version in {None, rule.version}
        and each.tag in {None, rule.tag}
        and each.key in {None, rule.key}
    ]
    return min(left, key=lambda each: each.kind, default=None)  # "block" < "pause"
