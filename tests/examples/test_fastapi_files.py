"""The three files of the page about FastAPI work as they are typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from penstock.broker.filter import Filter
from penstock.brokers import open_broker

FILES = Path(__file__).parents[2] / "examples" / "fastapi"
CUSTOMERS = """
import asyncio, httpx
from shop.api import api

async def order():
    customer = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop")
    async with api.router.lifespan_context(api), customer:
        for name in ("ada", "mallory"):
            print((await customer.post("/orders", params={"customer": name})).status_code)

asyncio.run(order())
"""


def run(folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if "PENSTOCK" not in name}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def test_orders_are_confirmed_and_refused_ones_leave_no_job(tmp_path: Path):
    folder = tmp_path / "project"
    shutil.copytree(FILES, folder)

    placed = run(folder, "-c", CUSTOMERS)
    run(folder, "-m", "penstock", "worker", "--drain", "--processes", "1")

    assert placed.split() == ["201", "403"]
    broker = open_broker(f"sqlite:///{folder}/shop.db")
    [job] = broker.find(Filter()).jobs
    broker.close()
    assert (job.task, job.state) == ("shop.jobs:confirm", "succeeded")
