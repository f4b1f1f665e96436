"""What each slot of a fleet costs its driver: `python benchmarks/fleet_driver.py --slots 50 200`.

The slots run no jobs: each has its Spark job, its thread and its connection to the driver, and
reports once a second, as a slot does. Executors are in the driver's Java here, so only Python's
side of the driver is measured: memory, threads, open files, and processor time while all report.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path
from typing import Any

import penstock.spark
from penstock.spark.fleet.driver import Fleet
from penstock.spark.fleet.slot_worker import SlotEnd

WATCHED = 20.0


class IdleFleet(Fleet):
    """The fleet, but for what a slot does on its executor."""

    def _run_task(self, slot: int) -> SlotEnd:
        address = self._channel.address
        place, token = (address.host, address.port), address.token

        def sit(slot: int) -> float:
            import json
            import socket
            import time

            with socket.create_connection(place) as line:
                line.settimeout(1.0)
                line.sendall(json.dumps({"slot": slot, "token": token}).encode() + b"\n")
                began = time.monotonic()
                while True:
                    try:
                        if line.recv(100):
                            return time.monotonic() - began
                    except TimeoutError:
                        line.sendall(json.dumps({"slot": slot, "settled": 1}).encode() + b"\n")

        slots: Any = self._spark.sparkContext.parallelize([slot], 1)
        [seconds] = slots.map(sit).collect()
        return SlotEnd(slot, "", 0, seconds, 0, "stopped")


def usage() -> tuple[float, int, int]:
    """Memory in MB, threads and open files of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    files = len(list(Path("/proc/self/fd").iterdir()))
    return int(fields["VmRSS"].split()[0]) / 1024, int(fields["Threads"]), files


def measure(spark: Any, slots: int) -> None:
    before = usage()
    reported: set[int] = set()
    fleet = IdleFleet(spark, "no:app", slots, on_report=lambda report: reported.add(report.slot))
    thread = threading.Thread(target=fleet.run)
    began = time.monotonic()
    thread.start()
    while len(reported) < slots:
        time.sleep(0.1)
    up = time.monotonic() - began
    times = os.times()
    time.sleep(WATCHED)
    spent = os.times()
    used = usage()
    fleet.stop()
    thread.join()
    busy = (spent.user + spent.system - times.user - times.system) / WATCHED
    memory, threads, files = (
        after - at_first for after, at_first in zip(used, before, strict=True)
    )
    print(
        f"{slots:>5} slots are up after {up:.1f} s: {1000 * memory / slots:,.0f} KB,"
        f" {threads / slots:.1f} threads, {files / slots:.1f} files and"
        f" {1000 * busy / slots:.2f} ms of processor time a second for each",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--slots", type=int, nargs="+", default=[50, 100, 200])
    options = parser.parse_args()
    spark = penstock.spark.session(f"local[{max(options.slots)}]", url="sqlite:///none.db")
    for slots in options.slots:
        measure(spark, slots)
    spark.stop()


if __name__ == "__main__":
    main()
