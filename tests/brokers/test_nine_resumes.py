"""A queue is paused, filled, and resumed by nine at once, with a worker beside it: one run each."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock import App
from penstock.brokers import open_broker
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.worker import Worker

JOBS = 1500


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


def test_fifteen_hundred_jobs_run_once_each(url):
    """D31, D33, D34, D35, D49: no cap on how many are resumed, and no run for each resume."""
    broker = open_broker(url)
    app = App(broker=broker)
    ran: list[int] = []
    over = threading.Event()

    @app.task(name="tick", queue="ticks")
    def tick(n: int) -> None:
        ran.append(n)
        if len(ran) >= JOBS:
            over.set()

    worker = Worker(app, threads=4)
    thread = threading.Thread(target=worker.work)
    broker.put(Rule(RuleKind.PAUSE, queue="ticks"))
    thread.start()
    tick.enqueue_many([(number,) for number in range(JOBS - 500)])
    app.enqueue([tick.options(tags={"tenant": "a"}).job(JOBS - 500 + n) for n in range(500)])
    [count] = broker.count()
    before = (count.paused, len(ran))

    start = threading.Barrier(9)
    answers: list[bool] = []

    def resume() -> None:
        start.wait()
        answers.append(broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="ticks")))

    resumes = [threading.Thread(target=resume) for _ in range(9)]
    for each in resumes:
        each.start()
    for each in resumes:
        each.join()
    assert over.wait(60)
    worker.stop()
    thread.join(30)

    assert before == (JOBS, 0)
    assert answers.count(True) == 1
    assert sorted(ran) == list(range(JOBS))
    assert sum(count.total for count in broker.count()) == 0
    app.close()
    broker.close()
