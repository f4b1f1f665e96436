"""The program of the story of datasets: days and a month, made slowly enough to be killed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from penstock import App, Interval
from tests.arrow_session import ArrowSession, frame

FOLDER = Path(os.environ["LEDGER"]).parent

app = App(os.environ["PENSTOCK_URL"])


def note(word: str) -> None:
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{word}\n")


@app.dataset(
    name="rides",
    partition="day",
    start="2026-01-20",
    table=FOLDER / "rides",
    spark=ArrowSession,
    crash_budget=50,
)
def rides(spark: Any, interval: Interval) -> Any:
    time.sleep(0.05)
    note(f"rides {interval}")
    return frame(day=[interval.text] * 3)


@app.dataset(
    name="busy",
    partition="month",
    table=FOLDER / "busy",
    inputs=[rides],
    spark=ArrowSession,
    crash_budget=50,
)
def busy(spark: Any, interval: Interval, found: Any) -> Any:
    note(f"busy {interval}")
    return frame(rides=[found.count()])
