"""Takes pictures of every page of a store that a shop might have, for people to look at.

    python -m tests.web.pictures FOLDER [light|dark|phone|phone-dark ...] [PAGE ...] [full] [webp]

What the shop's clock says at the end is the time of day: the doctor finds nothing wrong with it.
Needs playwright and a Chromium. The pictures in docs/assets/dashboard are made by this, and with
"webp", which is small, those in docs/assets/pictures, which docs/pictures.md shows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from penstock.broker.filter import Filter
from penstock.brokers.sharded.resharding import Resharding
from penstock.brokers.sqlite import SqliteBroker
from penstock.job import State
from penstock.testing.clock import Clock
from penstock.web.access import Role
from tests.brokers.sharded.unplugged import Unplugged, sharded
from tests.web.believable import Shop, fill
from tests.web.believable_datasets import traffic
from tests.web.conftest import Web, served
from tests.web.pictured_pages import DATASET_PAGES, SHAPES, SHARD_PAGES, SHOP_PAGES

LIVE_SECONDS = 25
FULL = False  # the whole page, beyond the window
KIND = "png"
DAYS = 7  # of ordinary trade before that
FILLED_SECONDS = 7700  # by the shop's clock, while the store is filled


def pages(broker: SqliteBroker) -> dict[str, str]:
    """The addresses of the shop's pages."""
    flows = {flow.ended_at is None: flow for flow in broker.flows().flows}
    jobs = [
        job for job in broker.find(Filter(state=(State.FAILED,))).jobs if job.task == "shop:charge"
    ]
    [node] = [node for node in flows[True].nodes if node.jobs > 1]
    ids = {"job": jobs[0].id, "flow-ended": flows[False].id}
    return {
        name: path.format(id=ids.get(name, flows[True].id), node=node.id)
        for name, path in SHOP_PAGES.items()
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
        if not wanted or set(SHARD_PAGES).intersection(wanted):
            clock = Clock(time.time())
            broker = sharded(clock, Unplugged(clock), Unplugged(clock))
            broker.audit("move", "ada", "growing", {"buckets": "0-99", "to": "b", "says": "begun"})
            next(Resharding(broker, dict).move(range(100), "b", busy=1.0))
            with served(broker, where="shards:///shop.toml") as web:
                _take(web, SHARD_PAGES, folder, shapes)


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
        blank = browser.new_page()
        for shape in shapes:
            page = browser.new_context(**SHAPES[shape]).new_page()
            page.goto(f"{web.address}/operations?token={web.texts[Role.ADMIN]}")
            for name, path in paths.items():
                page.goto(web.address + path, wait_until="networkidle" if not seconds else "load")
                page.wait_for_timeout(1000 * seconds)
                shot = page.screenshot(full_page=FULL)
                if KIND == "webp":
                    shot = _as_webp(blank, shot)
                (folder / f"{name}-{shape}.{KIND}").write_bytes(shot)
        browser.close()


def _as_webp(blank: Page, shot: bytes) -> bytes:
    """A fifth of the bytes; a page of no site, with no policy, does it."""
    data = blank.evaluate(
        """async png => {
            const image = new Image();
            image.src = "data:image/png;base64," + png;
            await image.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [image.width, image.height];
            canvas.getContext("2d").drawImage(image, 0, 0);
            return canvas.toDataURL("image/webp", 0.8);
        }""",
        b64encode(shot).decode(),
    )
    return b64decode(data.partition(",")[2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "wanted", nargs="*", help="light, dark, phone or phone-dark; names of pages; full; webp"
    )
    given = parser.parse_args()
    FULL = "full" in given.wanted  # pyright: ignore[reportConstantRedefinition]
    if "webp" in given.wanted:
        KIND = "webp"  # pyright: ignore[reportConstantRedefinition]
    main(
        given.folder,
        [each for each in given.wanted if each in SHAPES] or list(SHAPES),
        [each for each in given.wanted if each not in {*SHAPES, "full", "webp"}],
    )
