"""The dashboard over a large store: `python benchmarks/dashboard.py`.

    --store sqlite --store postgres    which stores; both without it
    --jobs 1000000 --queues 10000      how much is in them
    --requests 40                      of every page, one after the other
    --json                             for programs

The store is filled through the broker: most jobs wait, a fifth has ended, of these some failed, and
some run. The dashboard is `penstock dashboard` in a process of its own; a request is from the first
byte sent to the last one read; `cpu` is what the dashboard's own process computed for it, which a
busy machine does not change. Every GET route of the table is asked for, with ids of jobs where it
needs them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock import App
from penstock.broker.protocol import Broker
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.enqueue.ids import Ids
from penstock.job import Lane, cut, failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.postgres import Server
from penstock.web.routes import ROUTES

ASKED = 300.0  # milliseconds, p95
TASKS = tuple(f"shop:task_{number}" for number in range(20))
LEFT_OUT = {"/live", "/reports/lake", "/operations/new", "/api/v1/backfills/one"}
QUERIES = (
    "/jobs?q=state:failed",
    "/jobs?q=state:running",
    "/jobs?q=queue:queue-5",
    "/jobs?q=-queue:queue-5+state:ready",
    "/jobs?q=task:shop:task_7",
    "/jobs?q=tag.tenant:a",
    "/audit?author=ada",
    "/audit?author=nobody",
    "/api/v1/jobs?q=state:failed&limit=500",
)


def fill(broker: Broker, jobs: int, queues: int) -> dict[str, str]:
    """A store as the benchmark wants it; ids of one job of each state."""
    ids, known = Ids(broker.clock), dict.fromkeys(TASKS, 1)
    each = max(1, jobs // queues)
    body = b'{"args":{"number":1234567,"text":"' + b"x" * 60 + b'"}}'
    handed: list[Any] = []
    for number in range(queues):
        lane = Lane(f"queue-{number}", TASKS[number % len(TASKS)], 1, 0, ())
        handed += cut(lane, [body] * each, ids.first)
        if len(handed) >= 200:
            broker.enqueue(handed)
            handed = []
    if handed:
        broker.enqueue(handed)
    worker = WorkerRow(id="worker-0", tasks=known, host="bench", started_at=broker.clock.now())
    found: dict[str, str] = {}
    for _ in range(0, jobs // 5, 1000):
        pairs: list[Any] = []
        for job in broker.claim([Wanted(worker, limit=1000, queues=None)]).jobs[0]:
            bad = len(pairs) % 20 == 0
            pairs.append((job, failed("Traceback\nValueError: no") if bad else succeeded(b"1")))
            found["failed" if bad else "succeeded"] = job.id
        broker.settle(pairs)
    for number in range(1, 51):
        row = WorkerRow(
            id=f"worker-{number}", tasks=known, host="bench", started_at=broker.clock.now()
        )
        for job in broker.claim([Wanted(row, limit=20, queues=None)]).jobs[0]:
            found["running"] = job.id
    _people(broker, ids, found)
    broker.gauge()
    return found


def _people(broker: Broker, ids: Ids, found: dict[str, str]) -> None:
    """What people did, and what hangs together."""
    from penstock.job import Job

    lonely = [
        Job[Any](
            task=TASKS[0],
            id=ids.next(),
            queue="queue-0",
            key=f"k{n}",
            tags={"tenant": "a" if n % 2 else "b"},
        )
        for n in range(2000)
    ]
    broker.enqueue(lonely)
    found["ready"] = lonely[-1].id
    for number, job in enumerate(lonely[:1000]):
        broker.act("cancel", [job.id], "ada" if number % 2 else "bob", f"reason {number}")
    for number in range(20):
        rule = Rule(RuleKind.PAUSE, f"queue-{number}", None, "ada", "busy")
        broker.put(rule)
    app = App(broker=broker)

    @app.task(name=TASKS[0], queue="queue-1")
    def first(n: int) -> int:
        return n

    @app.task(name=TASKS[1], queue="queue-1")
    def second(n: int) -> int:
        return n

    for number in range(200):
        found["flow"] = app.flow("bench").enqueue(second.job(first.job(number).output)).id


@contextmanager
def served(url: str, folder: Path) -> Iterator[tuple[str, str, int]]:
    """`penstock dashboard` on this store; its address, a token, and its pid."""
    token = secrets.token_urlsafe(32)
    file = folder / "tokens"
    file.write_text(f"ada:admin:{token}\n")
    file.chmod(0o600)
    words = [
        "dashboard",
        "--url",
        url,
        "--port",
        "0",
        "--token-file",
        str(file),
        "--metrics",
        "--json",
    ]
    command = [sys.executable, "-m", "penstock", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], token, process.pid
    finally:
        process.terminate()
        process.wait(20)


def paths(found: dict[str, str]) -> list[str]:
    """What is asked for."""
    plain = [
        route.path
        for route in ROUTES
        if route.method == "GET" and "{" not in route.path and route.path not in LEFT_OUT
    ]
    states = ("ready", "running", "failed", "succeeded")
    jobs = [f"/jobs/{found[state]}" for state in states if state in found]
    rest = [
        route.path.replace("{id}", found["flow" if "flow" in route.path else "failed"])
        for route in ROUTES
        if route.method == "GET" and route.path.count("{") == 1 and "/{id}" in route.path
        if "operation" not in route.path and route.path != "/jobs/{id}"
    ]
    return [*plain, *jobs, *QUERIES, *rest]


def computed(pid: int) -> float:
    """Milliseconds of a processor that the dashboard has used; what else runs here adds nothing."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    address: str, token: str, pid: int, asked: list[str], requests: int
) -> list[dict[str, Any]]:
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=120)
    rows: list[dict[str, Any]] = []
    for path in asked:
        times: list[float] = []
        size = status = 0
        before = computed(pid)
        for _ in range(requests + 1):
            began = time.perf_counter()
            connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            size, status = len(answer.read()), answer.status
            times.append(1000 * (time.perf_counter() - began))
        times = sorted(times[1:])  # the first one opens the store, and is not counted
        late = times[math.ceil(0.95 * len(times)) - 1]
        rows.append(
            {
                "path": path,
                "status": status,
                "bytes": size,
                "p50_ms": round(times[len(times) // 2], 1),
                "p95_ms": round(late, 1),
                "cpu_ms": round((computed(pid) - before) / (requests + 1), 1),
            }
        )
    connection.close()
    return rows


def run(kind: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "sqlite":
            return _run(kind, f"sqlite:///{folder / 'jobs.db'}", folder, arguments)
        with Server() as server:
            return _run(kind, server.url(), folder, arguments)


def _run(kind: str, url: str, folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    began = time.monotonic()
    broker = open_broker(url)
    found = fill(broker, arguments.jobs, arguments.queues)
    broker.close()
    print(f"{kind}: filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
    with served(url, folder) as (address, token, pid):
        rows = measure(address, token, pid, paths(found), arguments.requests)
    return [{"store": kind, **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", action="append", choices=["sqlite", "postgres"])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    slow = False
    for kind in arguments.store or ["sqlite", "postgres"]:
        for row in run(kind, arguments):
            slow |= row["p95_ms"] > ASKED
            if arguments.json:
                print(json.dumps(row), flush=True)
            else:
                mark = "  SLOW" if row["p95_ms"] > ASKED else ""
                print(
                    f"{row['store']:<9} {row['p50_ms']:>8.1f} {row['p95_ms']:>8.1f} ms  "
                    f"{row['cpu_ms']:>7.1f} cpu  "
                    f"{row['status']} {row['bytes']:>9,} B  {row['path']}{mark}",
                    flush=True,
                )
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
