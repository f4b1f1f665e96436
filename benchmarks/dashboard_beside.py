"""A worker alone, and beside a dashboard that many ask: `python benchmarks/dashboard_beside.py`.

    --store sqlite --store postgres    which stores; both without it
    --jobs 100000 --runs 5

The worker has a core of its own, the dashboard and those who ask share the other one: what is
compared is what they do to the store, and not who gets the processor. A server shares that other
core with them: `busy` is what two loops leave of the worker's speed that never ask for anything.
Runs take turns; what is printed are medians of jobs a second, and their ratios.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from dashboard import served

from penstock import App
from penstock.testing.postgres import Server

app = App()
ASKED = ("/", "/jobs", "/jobs?q=state:failed", "/queues", "/workers", "/reports", "/audit")
READERS = 4


@app.task(name="beside:nothing")
def nothing(number: int) -> None:
    del number


def worked(url: str, jobs: int) -> float:
    """Jobs a second of one worker process, from its start until nothing is left."""
    with closing(App(url)) as here:
        task = here.task(name="beside:nothing")(nothing.function)
        task.enqueue_many([(number,) for number in range(jobs)])
    os.sched_setaffinity(0, {0})  # of this thread, and of what it starts
    command = [sys.executable, "-m", "penstock", "worker", f"{__file__}:app", "--drain"]
    began = time.perf_counter()
    subprocess.run(
        [*command, "--processes", "1"],
        env={**os.environ, "PENSTOCK_URL": url},
        check=True,
        capture_output=True,
    )
    return jobs / (time.perf_counter() - began)


@contextmanager
def asked(address: str, token: str) -> Generator[list[int]]:
    """Readers that ask for one page after another, and streams that nobody reads."""
    place, over, answers = urlsplit(address), threading.Event(), [0]
    headers = {"authorization": f"Bearer {token}"}

    def read(number: int) -> None:
        os.sched_setaffinity(0, {1})
        while not over.is_set():
            connection = HTTPConnection(place.hostname or "", place.port, timeout=30)
            with suppress(OSError, HTTPException):
                while not over.is_set():
                    connection.request("GET", ASKED[number % len(ASKED)], headers=headers)
                    connection.getresponse().read()
                    answers[0] += 1
                    number += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
    streams = [HTTPConnection(place.hostname or "", place.port) for _ in range(20)]
    for stream in streams:
        stream.request("GET", "/live", headers=headers)
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for stream in streams:
            stream.close()


@contextmanager
def busy() -> Generator[None]:
    """Two processes that compute without end, where a dashboard and its readers would."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    for loop in loops:
        os.sched_setaffinity(loop.pid, {1})
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def compare(kind: str, url: str, folder: Path, jobs: int, runs: int) -> None:
    alone: list[float] = []
    beside: list[float] = []
    crowded: list[float] = []
    worked(url, jobs // 10)  # makes the store, and does not count
    with served(url, folder) as (address, token, pid):
        os.sched_setaffinity(pid, {1})
        for _ in range(runs):
            alone.append(worked(url, jobs))
            with busy():
                crowded.append(worked(url, jobs))
            with asked(address, token) as answers:
                beside.append(worked(url, jobs))
            print(f"{kind}: {answers[0]:,} pages meanwhile", file=sys.stderr)
    first, second, third = median(alone), median(crowded), median(beside)
    print(
        f"{kind:9} alone {first:9,.0f} jobs/s  busy {second:9,.0f}  beside {third:9,.0f}  "
        f"beside/alone {third / first:.2f}  beside/busy {third / second:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", action="append", choices=["sqlite", "postgres"])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for kind in options.store or ["sqlite", "postgres"]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if kind == "sqlite":
                url = f"sqlite:///{folder / 'jobs.db'}"
                compare(kind, url, folder, options.jobs, options.runs)
                continue
            with Server() as server:
                compare(kind, server.url(), folder, options.jobs, options.runs)


if __name__ == "__main__":
    main()
