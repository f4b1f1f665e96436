"""Order per key on PostgreSQL: two claims at the same moment hand out one job of a key."""

from __future__ import annotations

import threading

from penstock.brokers.postgres import PostgresBroker
from penstock.job import Job, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim
from tests.brokers.postgres.gate import closed_gate
from tests.stories.conftest import eventually


def test_a_job_that_is_stored_while_another_of_its_key_is_claimed_waits_for_it(
    own_store_url, clock
):
    """The claim under way is not to be seen yet, and the new job has the lower id."""
    broker = PostgresBroker(own_store_url, clock=clock)
    broker.put(Rule(RuleKind.ORDER, queue="orders", policy="wait"))
    late = a_job(clock, queue="orders", key="ada", task="mail:sweep")
    clock.advance(seconds=0.01)
    first = a_job(clock, queue="orders", key="ada")
    broker.enqueue([first])
    claimed: dict[str, list[Job]] = {}

    def take(worker: str, task: str) -> None:
        claimed[worker] = claim(broker, 5, worker=worker, tasks={task: 1})

    threads = [
        threading.Thread(target=take, args=each)
        for each in (("worker-1", "mail:send"), ("worker-2", "mail:sweep"))
    ]
    with closed_gate(own_store_url, "job", "update") as gate:
        threads[0].start()
        gate.until(waiting=1)
        broker.enqueue([late])
        threads[1].start()
        eventually(lambda: not threads[1].is_alive() or gate.waiting() == 2)
        gate.open()
        for thread in threads:
            thread.join()

    assert [job.id for job in claimed["worker-1"]] == [first.id]
    assert claimed["worker-2"] == []
    broker.settle([(claimed["worker-1"][0], succeeded())])
    assert [job.id for job in claim(broker, 5, worker="worker-2")] == [late.id]
    broker.close()
