"""Run in an environment with a real Dagster, beside assets.py: its partition is a job, once."""

from __future__ import annotations

import json
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock import App
from penstock.worker import Worker

sys.path.insert(0, str(Path.cwd()))
dagster: Any = import_module("dagster")
assets: Any = import_module("assets")

jobs = App()
calls: list[str] = []


@jobs.task(name="trips:conflate", queue="trips")
def conflate(day: str) -> str:
    calls.append(day)
    return f"conflated {day}"


worker = Worker(jobs, threads=1)
thread = threading.Thread(target=worker.work)
thread.start()
first, second = (
    dagster.materialize([assets.conflated], partition_key="2026-01-31", raise_on_error=False)
    for _ in range(2)
)
worker.stop()
thread.join()
jobs.close()
answer = {
    "success": first.success,
    "result": first.output_for_node("conflated"),
    "again": second.success,
    "calls": calls,
}
sys.stdout.write(f"\n{json.dumps(answer)}\n")
