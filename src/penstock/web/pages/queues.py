"""The pages of queues: the list, fullest first; and one queue with its tasks and rules.

All numbers come from one `count`: ten thousand queues are sorted here, and fifty are sent.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from starlette.responses import Response

from penstock.broker.views import Count, by_queue
from penstock.operate.counts import COLUMNS, fullest_first, size_text
from penstock.operate.queue_settings import parse_option_words
from penstock.operate.refusals import NotFound
from penstock.rules.rule import Rule, RuleKind
from penstock.web.request import WebRequest

PAGE = 50
MOST_TASKS = 200
MOST_RULES = 10
STALE_SECONDS = 180.0  # a worker writes gauges every minute
SORTS: dict[str, Callable[[list[Count]], list[Count]]] = {
    "fullest": fullest_first,
    "failed": lambda counts: sorted(counts, key=lambda count: (-count.failed, count.queue)),
    "name": lambda counts: sorted(counts, key=lambda count: count.queue),
}


def show(request: WebRequest) -> Response:
    store, word = request.store, request.word("q").strip()
    sort = request.word("sort") if request.word("sort") in SORTS else "fullest"
    rules = [rule for rule in store.rules() if rule.in_force(store.now)]
    counts = _with_ruled(store.count(), rules)
    queues = SORTS[sort](by_queue(_with_word(counts, word) if word else counts))
    chosen = None if sort == "fullest" else sort
    pager = request.pager("/queues", PAGE, len(queues), q=word or None, sort=chosen)
    shown = queues[pager["first"] :][:PAGE]
    return request.page(
        "queues.html",
        title="Queues and rules",
        cli="penstock count",
        q=word,
        sort=sort,
        sorts=list(SORTS),
        columns=COLUMNS,
        queues=shown,
        all_queues=len(queues),
        oldest=_oldest(request),
        sizes={name: size_text(size) for name, size in store.queue_bytes().items()},
        marks=_marks(rules, {each.queue for each in shown}),
        rules=rules[:MOST_RULES],
        all_rules=len(rules),
        **pager,
    )


def one(request: WebRequest) -> Response:
    store, name = request.store, request.word("name")
    if not name:
        raise NotFound("No queue was named. Choose one on the page Queues.")
    rules = [rule for rule in store.rules() if rule.in_force(store.now)]
    tasks = [each for each in store.count() if each.queue == name]
    own = [rule for rule in rules if rule.queue == name]
    over = [rule for rule in rules if rule.queue is None and _is_about(rule, tasks)]
    whole = (by_queue(tasks) or [Count(name, "")])[0]
    return request.page(
        "queue.html",
        title=f"Queue {name}",
        cli=shlex.join(["penstock", "find", f"queue:{name}"]),
        queue=whole,
        tasks=fullest_first(tasks)[:MOST_TASKS],
        all_tasks=len(tasks),
        columns=COLUMNS,
        oldest=_oldest(request),
        options=store.queue_options(name),
        rules=own,
        over=over,
        held={rule.kind for rule in own if _holds_whole_queue(rule)},
    )


def set_options(request: WebRequest) -> Response:
    form = request.form()
    options = parse_option_words(form.get("options", "").split())
    queue, app = form.get("queue", ""), form.get("app", "")
    request.store.set_queue(queue, app, options, form.get("reason", ""))
    return request.go("/queues/one", name=queue)


def reset(request: WebRequest) -> Response:
    form = request.form()
    queue, app = form.get("queue", ""), form.get("app", "")
    request.store.reset_queue(queue, app, (), form.get("reason", ""))
    return request.go("/queues/one", name=queue)


def _oldest(request: WebRequest) -> dict[str, float]:
    """The wait of each queue's oldest due job at its last gauge, unless that is stale."""
    now = request.store.now
    return {
        queue: gauge.oldest
        for queue, (at, gauge) in request.store.gauges().items()
        if gauge.oldest is not None and now - at < STALE_SECONDS
    }


def _with_word(counts: Sequence[Count], word: str) -> list[Count]:
    """The counts whose task or queue has this word in its name."""
    word = word.casefold()
    return [
        each for each in counts if word in each.queue.casefold() or word in each.task.casefold()
    ]


def _with_ruled(counts: Sequence[Count], rules: Sequence[Rule]) -> list[Count]:
    """The counts, and an empty one for each queue that has a rule but no jobs."""
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


def _holds_whole_queue(rule: Rule) -> bool:
    """Whether it holds back the whole queue."""
    return rule.kind in {RuleKind.PAUSE, RuleKind.BLOCK} and not (
        rule.by_job or rule.task is not None or rule.version is not None
    )


def _is_about(rule: Rule, tasks: Sequence[Count]) -> bool:
    return rule.task is None or any(each.task == rule.task for each in tasks)
