"""Long ETL (AVAIL's story): days of work in steps that survive deploys and crashes.

    python examples/avail_etl.py

The steps are short here, so it takes some seconds. The worker is stopped and started while the job
runs, as in a deploy, and the job's own process is killed in the middle of a step. No step that was
completed runs a second time.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock import App, Retry, State, current_job

app = App()


@app.task(name="etl", detached=True, retry=Retry(limit=20, delay=0))
def etl(rows: int) -> int:
    """Three steps; the result of each is stored with the job, and not computed again."""
    job = current_job()
    numbers = job.step("extract", extract, rows)
    job.progress(1 / 3, "extracted")
    squares = job.step("transform", transform, numbers)
    job.progress(2 / 3, "transformed")
    return job.step("load", load, squares)


def extract(rows: int) -> list[int]:
    write_down("extract")
    while not (folder() / "deployed").exists():  # until the worker was restarted
        time.sleep(0.05)
    return list(range(1, rows + 1))


def transform(numbers: list[int]) -> list[int]:
    if current_job().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory runs out
    write_down("transform")
    return [number * number for number in numbers]


def load(squares: list[int]) -> int:
    """Goes on from the last snapshot, whichever attempt took it."""
    job = current_job()
    done, total = job.last_snapshot(tuple[int, int]) or (0, 0)
    for row, square in enumerate(squares[done:], start=done + 1):
        total += square
        if row % 10 == 0:
            job.snapshot((row, total))
        if row == 15 and job.attempt == 2:
            raise ConnectionError("the warehouse does not answer")
        write_down(f"row {row}")
    return total


def folder() -> Path:
    return Path(os.environ["PENSTOCK_STATE"])


def write_down(line: str) -> None:
    with (folder() / "done").open("a") as done:
        done.write(f"{line}\n")


def worker(*options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "worker", __file__, "--processes", "1", *options]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def wait_until_extracting() -> None:
    while not (folder() / "done").exists():
        time.sleep(0.05)


def main() -> None:
    handle = etl.enqueue(20)
    first = worker()
    wait_until_extracting()
    first.send_signal(signal.SIGTERM)
    first.wait()
    print(f"the worker is stopped, the job goes on: {handle.state() is State.RUNNING}")

    second = worker("--drain")  # adopts the job, and exits when it has ended
    (folder() / "deployed").touch()
    second.wait()
    attempts = [event for event in app.broker.history(job=handle.id) if event.kind == "attempt"]
    ends = [event.error or "done" for event in attempts]
    for number, end in enumerate(ends, start=1):
        print(f"attempt {number}: {end.splitlines()[-1]}")
    done = (folder() / "done").read_text().splitlines()
    print(f"extracted {done.count('extract')} time, transformed {done.count('transform')} time")
    print(f"rows loaded again, behind the snapshot: {len(done) - 2 - len(set(done[2:]))}")
    print(f"sum of the squares: {handle.result(timeout=0)}")
    app.close()


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        os.environ["PENSTOCK_URL"] = f"sqlite:///{temporary}/jobs.db"
        os.environ["PENSTOCK_STATE"] = temporary
        main()
