"""Races of processes that share one file. No job lost, none twice, none settled twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WORKER = """
import json, sys
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers.sqlite import SqliteBroker
from penstock.job import Job, succeeded

path, name, produce = sys.argv[1], sys.argv[2], int(sys.argv[3])
broker = SqliteBroker(path)
worker = WorkerRow(id=name, tasks={"mail:send": 1})
sent, settled, empty = [], [], 0
print("ready", flush=True)
sys.stdin.readline()
pairs = []
while empty < 20 or produce:
    if produce:
        jobs = [Job(task="mail:send", tags={"n": "1"} if n % 5 == 0 else {}) for n in range(10)]
        broker.enqueue(jobs)
        broker.enqueue(jobs[3:])
        sent += [job.id for job in jobs]
        produce -= 10
    answer = broker.claim([Wanted(worker, 7)], pairs)
    accepted, [claimed] = answer.accepted, answer.jobs
    settled += [job.id for (job, _), good in zip(pairs, accepted) if good]
    pairs = [(job, succeeded()) for job in claimed]
    empty = 0 if claimed else empty + 1
    if not claimed and not produce:
        broker.wait(None, 0.02)
broker.close()
print(json.dumps({"sent": sent, "settled": settled}))
"""


def test_several_processes_share_one_file(sqlite_broker, tmp_path: Path):
    """D8, D16, B13, G1: producers and workers in four processes; none lost, none settled twice."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, tmp_path / "jobs.db", f"process-{number}", "250"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"

    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    reports = [json.loads(process.communicate(timeout=60)[0]) for process in processes]

    assert [process.returncode for process in processes] == [0] * 4
    sent = [job_id for report in reports for job_id in report["sent"]]
    settled = [job_id for report in reports for job_id in report["settled"]]
    assert len(sent) == 1000
    assert sorted(settled) == sorted(sent)
    assert sqlite_broker.count() == []
    history = sqlite_broker.history(limit=5000)
    assert sorted(event.job for event in history) == sorted(sent)
