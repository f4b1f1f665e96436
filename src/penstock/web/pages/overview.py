"""Overview: where jobs stand, queue by queue, and what needs a look."""

from __future__ import annotations

from starlette.responses import Response

from penstock.broker.filter import Filter
from penstock.broker.views import PLACES, by_queue
from penstock.job import State
from penstock.web.live import MOST_ROWS
from penstock.web.request import Asked

MOST_QUEUES = 50
MOST_FAILED = 5


def show(asked: Asked) -> Response:
    verbs = asked.verbs
    queues = by_queue(verbs.count())
    queues.sort(key=lambda each: (-each.total - each.failed, each.queue))
    now = verbs.now
    workers = [row for row in verbs.workers() if row.queues != ()]
    return asked.page(
        "overview.html",
        title="Overview",
        cli="penstock count",
        queues=queues[:MOST_QUEUES],
        all_queues=len(queues),
        totals={place: sum(getattr(each, place) for each in queues) for place in PLACES},
        alive=sum(row.alive for row in workers),
        lapsed=sum(not row.alive for row in workers),
        rules=[rule for rule in verbs.rules() if rule.in_force(now)],
        most_rows=MOST_ROWS,
        failed=verbs.find(Filter(state=(State.FAILED,)), limit=MOST_FAILED).jobs,
    )
