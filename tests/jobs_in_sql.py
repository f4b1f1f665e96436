"""Jobs in every place that a store in tables has, for tests of what is seen of them in SQL."""

from __future__ import annotations

from typing import Any

from penstock import App, Job
from penstock.broker.filter import Filter
from penstock.job import failed, succeeded
from penstock.testing.conformance.factories import a_worker, claim_for

SEEN = ("task", "queue", "app", "version", "priority", "state", "reason", "key", "attempt", "error")


def a_store_of_jobs(app: App) -> dict[str, Job[Any]]:
    """Packed ones that wait and run, one with a row, one that failed, one that succeeded."""

    @app.task(name="shop:pay", secret=("card",))
    def pay(n: int, text: str, card: str) -> int:
        return n

    for n in range(6):
        pay.enqueue(n, "é" * n, "4111-1111")
    pay.options(key="ada", unique="once", tags={"order": "7"}, delay=60).enqueue(9, "", "4111-1111")
    running = claim_for(app.broker, a_worker("w1", tasks={"shop:pay": 1}), limit=3)
    app.broker.settle([(running[0], succeeded(b"7")), (running[1], failed("bad"))])
    return {job.id: job for job in app.broker.find(Filter(task=("shop:pay",))).jobs}
