"""Takes pictures of every page of a store that a shop might have, for people to look at.

    python -m tests.web.pictures FOLDER [light|dark|phone|phone-dark ...] [PAGE ...] [full]

What the shop's clock says at the end is the time of day: the doctor finds nothing wrong with it.
Needs playwright and a Chromium. The pictures in docs/assets/dashboard are made by this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from penstock.broker.filter import Filter
from penstock.brokers.sqlite import SqliteBroker
from penstock.job import State
from penstock.testing.clock import Clock
from penstock.web.access import Role
from tests.web.believable import Shop, fill
from tests.web.believable_datasets import traffic
from tests.web.conftest import Web, served

SHAPES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
LIVE_SECONDS = 25
FULL = False  # the whole page, beyond the window
DAYS = 7  # of ordinary trade before that
FILLED_SECONDS = 7700  # by the shop's clock, while the store is filled


def pages(broker: SqliteBroker) -> dict[str, str]:
    """A page of each kind, by the name of its picture."""
    flows = {flow.ended_at is None: flow for flow in broker.flows().flows}
    jobs = [
        job for job in broker.find(Filter(state=(State.FAILED,))).jobs if job.task == "shop:charge"
    ]
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
        "workers": "/workers",
        "reports": "/reports",
        "reports-day": "/reports?over=day",
        "reports-fortnight": "/reports?over=fortnight",
        "reports-task": "/reports?over=fortnight&task=shop:resize",
        "health": "/health",
        "audit": "/audit",
        "operations": "/operations",
    }


DATASET_PAGES = {
    "datasets": "/datasets",
    "dataset": "/datasets/one?name=probes",
    "dataset-partition": "/datasets/partition?name=conflated&partition=2026-02-01",
    "dataset-failed": "/datasets/partition?name=probes&partition=2026-02-17",
    "dataset-run": "/datasets/run?name=congestion&since=2026-01&until=2026-02",
}


def main(folder: Path, shapes: list[str], wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        clock = Clock(time.time() - FILLED_SECONDS - 86400 * DAYS)
        file = Path(place, "shop.db")
        broker = SqliteBroker(file, clock=clock)
        shop = fill(broker, clock, DAYS)
        clock.advance(max(0.0, time.time() - clock.now()))
        with served(broker, where="sqlite:///shop.db", url=f"sqlite:///{file}") as web:
            paths = pages(broker)
            paths = {name: path for name, path in paths.items() if not wanted or name in wanted}
            moves = {name: paths.pop(name) for name in ("overview",) if name in paths}
            _take(web, paths, folder, shapes)
            over = threading.Event()
            works = threading.Thread(target=_work, args=(shop, over))
            works.start()
            try:
                _take(web, moves, folder, shapes, LIVE_SECONDS)
            finally:
                over.set()
                works.join()
        broker.close()
        of_datasets = {
            name: path for name, path in DATASET_PAGES.items() if not wanted or name in wanted
        }
        if of_datasets:
            lake = Path(tempfile.gettempdir(), "lake")  # a name that a picture may show
            lake.mkdir()
            with traffic(lake) as app, served(app, where="sqlite:///traffic.db") as web:
                _take(web, of_datasets, folder, shapes)
            shutil.rmtree(lake)


def _work(shop: Shop, over: threading.Event) -> None:
    """A worker's day, at the pace of the clock on the wall."""
    while not over.wait(0.5):
        shop.trickle()


def _take(
    web: Web,
    paths: dict[str, str],
    folder: Path,
    shapes: list[str],
    seconds: float = 0.0,
) -> None:
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=os.geteuid() != 0
        )
        for shape in shapes:
            page = browser.new_context(**SHAPES[shape]).new_page()
            page.goto(f"{web.address}/operations?token={web.texts[Role.ADMIN]}")
            for name, path in paths.items():
                page.goto(web.address + path, wait_until="networkidle" if not seconds else "load")
                page.wait_for_timeout(1000 * seconds)
                page.screenshot(path=folder / f"{name}-{shape}.png", full_page=FULL)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "wanted", nargs="*", help="light, dark, phone or phone-dark; names of pages; full"
    )
    given = parser.parse_args()
    FULL = "full" in given.wanted  # pyright: ignore[reportConstantRedefinition]
    main(
        given.folder,
        [each for each in given.wanted if each in SHAPES] or list(SHAPES),
        [each for each in given.wanted if each not in {*SHAPES, "full"}],
    )
