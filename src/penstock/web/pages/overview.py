"""The page Overview: counts per queue, rules in force, and the last failures."""

from __future__ import annotations

from starlette.responses import Response

from penstock.broker.filter import Filter
from penstock.broker.views import by_queue
from penstock.job import State
from penstock.operate.counts import COLUMNS, fullest_first, totals
from penstock.web.live import MOST_ROWS
from penstock.web.request import WebRequest

MOST_QUEUES = 50
MOST_FAILED = 5


def show(request: WebRequest) -> Response:
    store = request.store
    queues = fullest_first(by_queue(store.count()))
    now = store.now
    workers = [row for row in store.workers() if row.queues != ()]
    return request.page(
        "overview.html",
        title="Overview",
        cli="penstock count",
        queues=queues[:MOST_QUEUES],
        all_queues=len(queues),
        columns=COLUMNS,
        totals=totals(queues),
        alive=sum(row.alive for row in workers),
        lapsed=sum(not row.alive for row in workers),
        rules=[rule for rule in store.rules() if rule.in_force(now)],
        most_rows=MOST_ROWS,
        failed=store.find(Filter(state=(State.FAILED,)), limit=MOST_FAILED).jobs,
    )
