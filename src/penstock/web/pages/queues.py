"""Queues: where their jobs stand, fullest first; and one queue, task by task, with its rules.

All of it comes from one `count`: ten thousand queues are sorted and cut here, and fifty are sent.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import Response

from penstock.broker.views import Count, by_queue
from penstock.operate.refusals import NotFound
from penstock.rules.rule import Rule, RuleKind
from penstock.web.request import Asked

PAGE = 50
MOST_TASKS = 200
MOST_RULES = 10
STALE_SECONDS = 180.0  # gauges are of every minute while a worker is there
COLUMNS = ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed")
SORTS: dict[str, Callable[[Count], Any]] = {
    "fullest": lambda each: (-each.total - each.failed, each.queue),
    "failed": lambda each: (-each.failed, each.queue),
    "name": lambda each: each.queue,
}


def show(asked: Asked) -> Response:
    verbs, word = asked.verbs, asked.word("q").strip()
    sort = asked.word("sort") if asked.word("sort") in SORTS else "fullest"
    rules = [rule for rule in verbs.rules() if rule.in_force(verbs.now)]
    counts = _with_ruled(verbs.count(), rules)
    queues = by_queue(_with_word(counts, word) if word else counts)
    queues.sort(key=SORTS[sort])
    further = None if sort == "fullest" else sort
    pager = asked.pager("/queues", PAGE, len(queues), q=word or None, sort=further)
    shown = queues[pager["first"] :][:PAGE]
    return asked.page(
        "queues.html",
        title="Queues and rules",
        cli="penstock count",
        q=word,
        sort=sort,
        sorts=list(SORTS),
        columns=COLUMNS,
        queues=shown,
        all_queues=len(queues),
        oldest=_oldest(asked),
        marks=_marks(rules, {each.queue for each in shown}),
        rules=rules[:MOST_RULES],
        all_rules=len(rules),
        **pager,
    )


def one(asked: Asked) -> Response:
    verbs, name = asked.verbs, asked.word("name")
    if not name:
        raise NotFound("Which queue? Choose one from the list.")
    rules = [rule for rule in verbs.rules() if rule.in_force(verbs.now)]
    tasks = [each for each in verbs.count() if each.queue == name]
    own = [rule for rule in rules if rule.queue == name]
    over = [rule for rule in rules if rule.queue is None and _touches(rule, tasks)]
    tasks.sort(key=lambda each: (-each.total - each.failed, each.task))
    whole = (by_queue(tasks) or [Count(name, "")])[0]
    return asked.page(
        "queue.html",
        title=f"Queue {name}",
        cli=shlex.join(["penstock", "find", f"queue:{name}"]),
        queue=whole,
        tasks=tasks[:MOST_TASKS],
        all_tasks=len(tasks),
        columns=COLUMNS,
        oldest=_oldest(asked),
        rules=own,
        over=over,
        held={rule.kind for rule in own if _of_the_whole(rule)},
    )


def _oldest(asked: Asked) -> dict[str, float]:
    """How long the oldest due job of a queue waited at the last gauge, if that was just now."""
    now = asked.verbs.now
    return {
        queue: gauge.oldest
        for queue, (at, gauge) in asked.verbs.gauges().items()
        if gauge.oldest is not None and now - at < STALE_SECONDS
    }


def _with_word(counts: Sequence[Count], word: str) -> list[Count]:
    """The tasks whose name, or whose queue's name, has this word in it."""
    word = word.casefold()
    return [
        each for each in counts if word in each.queue.casefold() or word in each.task.casefold()
    ]


def _with_ruled(counts: Sequence[Count], rules: Sequence[Rule]) -> list[Count]:
    """The counts, and an empty one for each queue that a rule names and that holds nothing."""
    there = {each.queue for each in counts}
    named = dict.fromkeys(rule.queue for rule in rules if rule.queue is not None)
    return [*counts, *(Count(queue, "") for queue in named if queue not in there)]


def _marks(rules: Sequence[Rule], queues: set[str]) -> dict[str, list[Rule]]:
    """The rules that name one of these queues."""
    marks: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.queue in queues:
            marks.setdefault(rule.queue, []).append(rule)
    return marks


def _of_the_whole(rule: Rule) -> bool:
    """Whether it keeps back all of a queue."""
    return rule.kind in {RuleKind.PAUSE, RuleKind.BLOCK} and not (
        rule.by_job or rule.task is not None or rule.version is not None
    )


def _touches(rule: Rule, tasks: Sequence[Count]) -> bool:
    return rule.task is None or any(each.task == rule.task for each in tasks)
