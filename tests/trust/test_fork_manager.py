"""A fork after use: parent and child have channels of their own, and no job is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.brokers.memory import MemoryBroker
from penstock.manager.server import Manager

# gRPC is told of forks by an environment variable that it reads when it is first imported, and a
# manager in the same process would be forked with it: so each program is one of its own.
PROGRAM = """
import gc, os, sys, threading, time
from penstock.brokers import open_broker
from penstock.job import Job, succeeded
from penstock.testing.conformance.factories import a_worker, claim_for

def in_child(act):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]

broker = open_broker(sys.argv[1])
"""
USED = """
broker.enqueue([Job(task="mail:send")])
LISTENS

def use():
    broker.enqueue([Job(task="mail:send"), Job(task="mail:sweep")])
    [job] = claim_for(broker, a_worker("child", tasks={"mail:sweep": 1}), limit=5)
    assert broker.settle([(job, succeeded())]) == [True]
    assert broker.traits.rules_version() is not None
    broker.wait(None, 0.05)
    broker.close()

assert [in_child(use) for _ in range(3)] == [0, 0, 0]
assert in_child(lambda: None) == 0
assert in_child(broker.close) == 0
jobs = claim_for(broker, a_worker(), limit=10)
assert len(jobs) == 4, jobs
assert all(broker.settle([(job, succeeded()) for job in jobs]))
broker.close()
"""
IN_MID_CALL = """
over, stored = threading.Event(), []

def produce():
    while not over.is_set():
        job = Job(task="mail:send")
        broker.enqueue([job])
        stored.append(job.id)

producers = [threading.Thread(target=produce) for _ in range(3)]
for producer in producers:
    producer.start()
codes = []
for _ in range(5):
    time.sleep(0.05)
    codes.append(in_child(lambda: broker.enqueue([Job(task="mail:sweep")])))
over.set()
for producer in producers:
    producer.join()
assert codes == [0] * 5, codes
jobs = []
while claimed := claim_for(broker, a_worker(), limit=1000):
    jobs += claimed
assert sorted(job.id for job in jobs if job.task == "mail:send") == sorted(stored)
assert sum(job.task == "mail:sweep" for job in jobs) == 5
broker.close()
"""


@pytest.mark.parametrize(
    "program",
    [
        USED.replace("LISTENS", ""),
        USED.replace("LISTENS", "broker.traits.rules_version()"),
        IN_MID_CALL,
    ],
    ids=["producer", "worker", "in mid call"],
)
def test_a_child_does_not_disturb_the_parent(program):
    with Manager(MemoryBroker(), "127.0.0.1:0") as manager:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM + program, manager.url],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stderr) == (0, "")
