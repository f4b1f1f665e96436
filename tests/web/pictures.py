"""Takes pictures of every page of a store that a shop might have, for people to look at.

    python -m tests.web.pictures FOLDER [light|dark|phone ...]

Needs a Chromium. The pictures in docs/assets/dashboard are made by this.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from penstock.brokers.sqlite import SqliteBroker
from penstock.testing.clock import Clock
from penstock.web.access import Role
from tests.web.believable import fill
from tests.web.conftest import served

SHAPES = {
    "light": ("1280,1000", []),
    "dark": ("1280,1000", ["--blink-settings=preferredColorScheme=0"]),
    "phone": ("390,1400", []),
}


def pages(broker: SqliteBroker) -> dict[str, str]:
    """A page of each kind, by the name of its picture."""
    flows = {flow.ended_at is None: flow for flow in broker.flows().flows}
    jobs = [job for job in broker.find(_failed()).jobs if job.task == "shop:charge"]
    [node] = [node for node in flows[True].nodes if node.jobs > 1]
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{jobs[0].id}",
        "flows": "/flows",
        "flow": f"/flows/{flows[True].id}",
        "flow-ended": f"/flows/{flows[False].id}",
        "flow-node": f"/flows/{flows[True].id}/nodes/{node.id}",
        "queues": "/queues",
        "queue": "/queues/one?name=payments",
        "rule": "/rules/new?kind=pause&queue=mail&reason=provider+is+down&for=3600",
        "schedules": "/schedules",
        "schedule": f"/schedules/one?name={quote('spring clean')}",
        "schedule-often": "/schedules/one?name=reindex",
        "backfills": "/backfills",
        "backfill": "/backfills/one?task=shop:daily_report",
        "operations": "/operations",
    }


def _failed():
    from penstock.filter import Filter
    from penstock.job import State

    return Filter(state=(State.FAILED,))


def main(folder: Path, shapes: list[str], wanted: list[str]) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        clock = Clock()
        broker = SqliteBroker(Path(place, "shop.db"), clock=clock)
        fill(broker, clock)
        with served(broker, where="sqlite:///shop.db") as web:
            for name, path in pages(broker).items():
                if wanted and name not in wanted:
                    continue
                for shape in shapes:
                    size, more = SHAPES[shape]
                    mark = "&" if "?" in path else "?"
                    address = f"{web.address}{path}{mark}token={web.texts[Role.ADMIN]}"
                    subprocess.run(
                        [
                            *(chromium, "--headless", "--no-sandbox", "--disable-gpu"),
                            *("--hide-scrollbars", f"--user-data-dir={place}/chromium"),
                            *(f"--screenshot={folder}/{name}-{shape}.png", f"--window-size={size}"),
                            *more,
                            *("--timeout=4000", address),
                        ],
                        check=True,
                        capture_output=True,
                    )
        broker.close()


if __name__ == "__main__":
    asked = sys.argv[2:]
    main(
        Path(sys.argv[1]),
        [each for each in asked if each in SHAPES] or list(SHAPES),
        [each for each in asked if each not in SHAPES],
    )
